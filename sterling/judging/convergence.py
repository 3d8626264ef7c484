"""Whether fitted Q evaluation has converged: how far exact regressions would still move the value.

Too few updates leave every network near what it began with, the value of the policy that made the
log. The networks then agree, and the interval of their spread is narrow and wrong. Therefore fitted
Q iteration goes on from the learned networks, on their last layer, where each regression is solved:

    w <- w + (H^T H + ridge)^-1 H^T [r + g V(s') - Q(s, a)],    Q(s, a) = h(s, a)^T w

with h(s, a) what the last layer reads, until gamma^iterations is ``REST``. It does so once on each
half of the episodes. A converged Q has Bellman residuals that neither half can explain, so the two
move the value little, or to different sides: chance in the one half cancels that in the other.
Where both move it to the same side, and on average by more than ``MOVED`` of the interval's half
width, no interval is stated. What the features h cannot express stays unseen. How often this
refuses fits that have and have not converged: benchmarks/results/offpolicy.md.
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

from sterling import keys
from sterling.data import Dataset
from sterling.judging import fqe
from sterling.judging.policies import log_probs
from sterling.judging.rows import episode_of, over_rows, starts
from sterling.statistics import Estimate
from sterling.types import Obs, Record

MOVED = 1.0  # of the interval's half width
REST = 0.01  # share of the first movement at which the iteration ends
LONGEST = 1000  # iterations
ROWS = 8192  # of each half, drawn by chance where it has more
RIDGE = 0.01  # of the mean square of a feature
MEMBERS = 3  # networks that go on
MORE = 4  # times as many updates are advised


@dataclasses.dataclass(frozen=True)
class Rows:
    """What the regressions of one network need; ``choice`` is 1 where actions are no choices."""

    here: Float[np.ndarray, "row feature"]  # h of the logged action
    there: Float[np.ndarray, "row feature"]  # h of the next state under the policy
    action: Float[np.ndarray, "row choice"]  # one-hot
    chances: Float[np.ndarray, "row choice"]  # of the policy in the next state
    reward: Float[np.ndarray, "row"]
    discount: Float[np.ndarray, "row"]


def checked(
    made: Estimate, state: fqe.State, dataset: Dataset, key: Key[Array, ""], seed: int = 0
) -> Estimate:
    """Return ``made``, or where the fit has not converged the same without its interval."""
    if made.low is None or made.high is None:
        return made
    moves = movements(state, dataset, key, seed)
    # an interval of as few rows as the regressions see would be that much wider
    half = (made.high - made.low) / 2 * math.sqrt(max(dataset.rows / (2 * ROWS), 1.0))
    move = float(moves.mean())
    if not (np.ptp(np.sign(moves)) == 0.0 and abs(move) > MOVED * half):
        return made
    updates = int(state.config.updates)
    why = f"not converged after {updates} updates: going on would move the value by {move:+.3g}"
    advice = f"no interval can be stated; give more, as --updates {MORE * updates}"
    return dataclasses.replace(made, low=None, high=None, method=f"{made.method}; {why}; {advice}")


def movements(
    state: fqe.State, dataset: Dataset, key: Key[Array, ""], seed: int = 0
) -> Float[np.ndarray, "half"]:
    """By how much each half of the episodes would move the value, the mean over ``MEMBERS``."""
    random = np.random.default_rng(seed)
    episode = episode_of(dataset)
    side = random.permutation(int(episode[-1]) + 1) % 2
    begin = _begins(state, dataset, key)
    found = []
    for half in range(2):
        index = np.flatnonzero(side[episode] == half)
        index = np.sort(random.permutation(index)[:ROWS])
        parts = zip(_rows(state, dataset, key, index), begin, _last(state), strict=True)
        found.append(np.mean([_moved(*part, state.config) for part in parts]))
    return np.array(found)


def _moved(
    rows: Rows, begin: tuple[Any, Any], last: Float[np.ndarray, "feature choice"], config: Any
) -> float:
    """By how much one network's value moves until regressions on ``rows`` stand still."""
    gamma, middle, scale = float(config.gamma), float(config.middle), float(config.scale)
    solvers = [_solver(rows.here * chosen[:, None]) for chosen in rows.action.T]
    low, high = float(config.low), float(config.high)

    def values(at: Float[np.ndarray, "row feature"], chances: Any, w: Any) -> Any:
        return np.clip(middle + scale * (at @ w * chances).sum(1), low, high)

    w, count = last, min(math.ceil(math.log(REST) / math.log(gamma)), LONGEST)
    for _ in range(count):
        following = values(rows.there, rows.chances, w)
        y = (rows.reward + gamma * rows.discount * following - middle) / scale
        error = y - (rows.here @ w * rows.action).sum(1)
        w = w + np.stack([solver @ error for solver in solvers], 1)
    new, old = (values(*begin, each).mean() for each in (w, last))
    return float(new - old)


def _solver(features: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "feature row"]:
    """Return the matrix that turns errors into the ridge regression's coefficients."""
    square = features.T @ features
    ridge = RIDGE * np.trace(square) / len(square) + 1e-9
    return np.asarray(np.linalg.solve(square + ridge * np.eye(len(square)), features.T))


def _last(state: fqe.State) -> list[Float[np.ndarray, "feature choice"]]:
    """Weights and bias of each member's last layer."""
    layer = state.target.net.layers[-1]
    weight, bias = np.asarray(layer.weight, np.float64), np.asarray(layer.bias, np.float64)
    return list(np.concatenate([weight, bias[:, None]], 1)[:MEMBERS])


def _rows(state: fqe.State, dataset: Dataset, key: Any, index: np.ndarray) -> list[Rows]:
    """Some rows as each member's last layer reads them."""
    here, there, *rest = _exact(over_rows(_read, dataset, state, key, index=index))
    both = zip(np.moveaxis(here, 1, 0), np.moveaxis(there, 1, 0), strict=True)
    return [Rows(h, t, *rest) for h, t in itertools.islice(both, MEMBERS)]


def _begins(state: fqe.State, dataset: Dataset, key: Any) -> list[tuple[Any, Any]]:
    """Each member's features at the episodes' first states, and the policy's chances there."""
    features, chances = _exact(over_rows(_start, dataset, state, key, index=starts(dataset)))
    return [(each, chances) for each in np.moveaxis(features, 1, 0)[:MEMBERS]]


def _exact(parts: Any) -> list[Any]:
    return [np.asarray(part, np.float64) for part in parts]


def _read(state: fqe.State, key: Array, record: Record) -> tuple[Array, ...]:
    """The arrays of :class:`Rows`; features are ``(row, member, feature)``."""
    here, actions = _features(state, record.obs, record.action), state.target.actions
    there, chances = _acting(state, record.next_obs, key)
    taken = jnp.ones_like(chances)
    if actions is not None and actions.kind == "discrete":
        taken = jax.nn.one_hot(record.action, actions.outputs)
    return here, there, taken, chances, record.reward, record.discount


def _start(state: fqe.State, key: Array, record: Record) -> tuple[Array, Array]:
    return _acting(state, record.obs, key)


def _acting(state: fqe.State, obs: Obs, key: Array) -> tuple[Array, Array]:
    """Features under the policy, and its chances: all choices, or the one action it draws."""
    actions, policy = state.target.actions, state.policy
    if actions is not None and actions.kind == "discrete" and policy.has_log_prob:
        return _features(state, obs, None), jnp.exp(log_probs(policy, obs, actions.outputs))
    action = policy.sample(obs, keys.fold(key, "draw", 0))
    found = _features(state, obs, action)
    if actions is not None and actions.kind == "discrete":
        return found, jax.nn.one_hot(action, actions.outputs)
    return found, jnp.ones((found.shape[0], 1))


def _features(state: fqe.State, obs: Obs, action: Any) -> Float[Array, "row member feature"]:
    """What the last layers read, and a 1 for the bias."""
    seen = state.seen(obs)
    made = eqx.filter_vmap(lambda net: net.features(seen, action))(state.target)
    made = jnp.concatenate([made, jnp.ones((*made.shape[:-1], 1))], -1)
    return jnp.moveaxis(made, 0, 1)
