"""Check whether fitted Q evaluation has converged: how far further exact regressions would move the
value.

After too few updates all networks are near their initial value, the behaviour policy's. They then
agree, and the interval of their spread is narrow and wrong. Therefore fitted Q iteration continues
from the learned networks, on their last layer, where each regression is solved exactly:

    w <- w + (H^T H + ridge)^-1 H^T [r + g V(s') - Q(s, a)],    Q(s, a) = h(s, a)^T w

with h(s, a) the last layer's input, until gamma^iterations is ``REMAINING_SHARE``. This is done
once on each half of the episodes. The Bellman residuals of a converged Q are noise that neither
half can explain, so the two halves move the value little, or in opposite directions. If both move
it in the same direction, and on average by more than ``MOVE_LIMIT`` times the interval's half
width, no interval is stated. Errors that the features h cannot express are not detected. How often
converged and unconverged fits are refused: benchmarks/results/offpolicy.md.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.data import Dataset
from sterling.evaluation.off_policy.fqe import fqe
from sterling.evaluation.off_policy.log_rows import episode_numbers, first_rows, map_rows
from sterling.evaluation.off_policy.policy_probabilities import action_log_probs
from sterling.statistics import Estimate
from sterling.types import Obs, Record

MOVE_LIMIT = 1.0  # largest accepted movement, in half widths of the interval
REMAINING_SHARE = 0.01  # share of the first movement at which the iteration stops
MAX_ITERATIONS = 1000  # iterations
MAX_ROWS = 8192  # rows used of each half, drawn at random if it has more
RIDGE = 0.01  # ridge, relative to the features' mean square
MEMBERS = 3  # networks that are checked
ADVISED_FACTOR = 4  # factor of the advised number of updates


@dataclasses.dataclass(frozen=True)
class RegressionRows:
    """The data of one network's regressions; ``choice`` has length 1 if actions are not
    discrete."""

    here: Float[np.ndarray, "row feature"]  # h of the logged action
    there: Float[np.ndarray, "row feature"]  # h of the next state with the policy's action
    action: Float[np.ndarray, "row choice"]  # one-hot
    chances: Float[np.ndarray, "row choice"]  # the policy's probabilities in the next state
    reward: Float[np.ndarray, "row"]
    discount: Float[np.ndarray, "row"]


def check_convergence(
    made: Estimate, state: fqe.State, dataset: Dataset, key: Key[Array, ""], seed: int = 0
) -> Estimate:
    """Return ``made``, without its interval if the fit has not converged."""
    if made.low is None or made.high is None:
        return made
    moves = value_movements(state, dataset, key, seed)
    # an interval from as few rows as the regressions use would be this much wider
    half = (made.high - made.low) / 2 * math.sqrt(max(dataset.rows / (2 * MAX_ROWS), 1.0))
    move = float(moves.mean())
    if not (np.ptp(np.sign(moves)) == 0.0 and abs(move) > MOVE_LIMIT * half):
        return made
    updates = int(state.config.updates)
    why = f"not converged after {updates} updates: going on would move the value by {move:+.3g}"
    advice = f"no interval can be stated; give more, as --updates {ADVISED_FACTOR * updates}"
    return dataclasses.replace(made, low=None, high=None, method=f"{made.method}; {why}; {advice}")


def value_movements(
    state: fqe.State, dataset: Dataset, key: Key[Array, ""], seed: int = 0
) -> Float[np.ndarray, "half"]:
    """Return how far each half of the episodes would move the value, averaged over ``MEMBERS``
    networks."""
    random = np.random.default_rng(seed)
    episode = episode_numbers(dataset)
    side = random.permutation(int(episode[-1]) + 1) % 2
    begin = _start_features(state, dataset, key)
    found = []
    for half in range(2):
        index = np.flatnonzero(side[episode] == half)
        index = np.sort(random.permutation(index)[:MAX_ROWS])
        parts = zip(
            _regression_rows(state, dataset, key, index), begin, _last_layers(state), strict=True
        )
        found.append(np.mean([_value_movement(*part, state.config) for part in parts]))
    return np.array(found)


def _value_movement(
    rows: RegressionRows,
    begin: tuple[Any, Any],
    last: Float[np.ndarray, "feature choice"],
    config: Any,
) -> float:
    """Return how far one network's value moves until regressions on ``rows`` converge."""
    gamma, middle, scale = float(config.gamma), float(config.middle), float(config.scale)
    solvers = [_ridge_solver(rows.here * chosen[:, None]) for chosen in rows.action.T]
    low, high = float(config.low), float(config.high)

    def values(at: Float[np.ndarray, "row feature"], chances: Any, w: Any) -> Any:
        return np.clip(middle + scale * (at @ w * chances).sum(1), low, high)

    w, count = last, min(math.ceil(math.log(REMAINING_SHARE) / math.log(gamma)), MAX_ITERATIONS)
    for _ in range(count):
        following = values(rows.there, rows.chances, w)
        y = (rows.reward + gamma * rows.discount * following - middle) / scale
        error = y - (rows.here @ w * rows.action).sum(1)
        w = w + np.stack([solver @ error for solver in solvers], 1)
    new, old = (values(*begin, each).mean() for each in (w, last))
    return float(new - old)


def _ridge_solver(features: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "feature row"]:
    """Return the matrix that maps errors to ridge-regression coefficients."""
    square = features.T @ features
    ridge = RIDGE * np.trace(square) / len(square) + 1e-9
    return np.asarray(np.linalg.solve(square + ridge * np.eye(len(square)), features.T))


def _last_layers(state: fqe.State) -> list[Float[np.ndarray, "feature choice"]]:
    """Return weights and bias of each member's last layer."""
    layer = state.target.net.layers[-1]
    weight, bias = np.asarray(layer.weight, np.float64), np.asarray(layer.bias, np.float64)
    return list(np.concatenate([weight, bias[:, None]], 1)[:MEMBERS])


def _regression_rows(
    state: fqe.State, dataset: Dataset, key: Any, index: np.ndarray
) -> list[RegressionRows]:
    """Return the regression data of rows ``index`` for each member."""
    here, there, *rest = _to_float64(map_rows(_row_features, dataset, state, key, index=index))
    both = zip(np.moveaxis(here, 1, 0), np.moveaxis(there, 1, 0), strict=True)
    return [RegressionRows(h, t, *rest) for h, t in itertools.islice(both, MEMBERS)]


def _start_features(state: fqe.State, dataset: Dataset, key: Any) -> list[tuple[Any, Any]]:
    """Return each member's features in the episodes' first states, and the policy's probabilities
    there."""
    features, chances = _to_float64(
        map_rows(_features_at_obs, dataset, state, key, index=first_rows(dataset))
    )
    return [(each, chances) for each in np.moveaxis(features, 1, 0)[:MEMBERS]]


def _to_float64(parts: Any) -> list[Any]:
    return [np.asarray(part, np.float64) for part in parts]


def _row_features(state: fqe.State, key: Array, record: Record) -> tuple[Array, ...]:
    """Return the arrays of :class:`RegressionRows`; features are ``(row, member, feature)``."""
    here, actions = _features(state, record.obs, record.action), state.target.actions
    there, chances = _policy_features(state, record.next_obs, key)
    taken = jnp.ones_like(chances)
    if actions is not None and actions.kind == "discrete":
        taken = jax.nn.one_hot(record.action, actions.outputs)
    return here, there, taken, chances, record.reward, record.discount


def _features_at_obs(state: fqe.State, key: Array, record: Record) -> tuple[Array, Array]:
    return _policy_features(state, record.obs, key)


def _policy_features(state: fqe.State, obs: Obs, key: Array) -> tuple[Array, Array]:
    """Return features and the policy's probabilities: of all choices, or of the one action it
    draws."""
    actions, policy = state.target.actions, state.policy
    if actions is not None and actions.kind == "discrete" and policy.has_log_prob:
        return _features(state, obs, None), jnp.exp(action_log_probs(policy, obs, actions.outputs))
    action = policy.sample(obs, random_keys.fold(key, "draw", 0))
    found = _features(state, obs, action)
    if actions is not None and actions.kind == "discrete":
        return found, jax.nn.one_hot(action, actions.outputs)
    return found, jnp.ones((found.shape[0], 1))


def _features(state: fqe.State, obs: Obs, action: Any) -> Float[Array, "row member feature"]:
    """Return the inputs of the last layers, with a 1 appended for the bias."""
    seen = state.seen(obs)
    made = eqx.filter_vmap(lambda net: net.features(seen, action))(state.target)
    made = jnp.concatenate([made, jnp.ones((*made.shape[:-1], 1))], -1)
    return jnp.moveaxis(made, 0, 1)
