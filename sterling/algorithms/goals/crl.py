"""Contrastive reinforcement learning (Eysenbach 2022, arXiv:2206.07568; as CRL in OGBench, Park
2025, arXiv:2410.20092), for Box actions.

    scores    f_k(s, a, g) = phi_k(s, a)^T psi_k(g) / sqrt(d),      k = 1, 2
    critics   L_Q  = mean_ij sum_k { -log sigma(f_k(s_i, a_i, g_j))   if i = j
                                     -log sigma(-f_k(s_i, a_i, g_j))  otherwise } / 2
    policy    L_pi = -E[ f(s, mu(s, g), g) ] / E|f| - alpha E[ log pi(a|s, g) ],   f = min_k f_k

Row i's goal g_i was achieved k steps later in its episode with probability (1 - gamma) gamma^(k-1),
and the goals of the batch's other rows j are what it is told from. At the minimum over batches of n
rows f = log p(g|s, a) - log p(g) - log(n - 1): the future's density beside that of any goal, so a
higher f is an earlier or likelier arrival. There are no rewards, bootstraps or target networks.
d is ``representation``; pi is a normal distribution of deviation 1 around mu, which climbs f and
stays near logged actions (DDPG+BC, Fujimoto 2021, arXiv:2106.06860), for goals of its own, uniform
over the rest of the episode (``needs/goal_rows.py``).

Deviations from OGBench's code: hidden layers are normalised before their activation (there after
it); initial weights are from U(-1/sqrt(inputs), 1/sqrt(inputs)) (there Glorot's).
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key

from sterling import random_keys
from sterling.algorithms.goals import gcivl
from sterling.equations.goal_rewards import wanting
from sterling.equations.masked_average import masked_mean
from sterling.field_types import (
    Activation,
    Count,
    Depth,
    NotNegative,
    Share,
    ShareBelowOne,
    Sizes,
)
from sterling.needs.goal_rows import GOAL, POLICY_GOAL
from sterling.nets.action_heads import ASKED_FOR_GOALS, supported_actions
from sterling.nets.mlp import MLP, hidden_sizes
from sterling.nets.optimiser import adam, descend
from sterling.nets.special_layers.goal_networks import (
    UnitPolicy,
    goal_sizes,
    with_goal,
    with_own_goal,
)
from sterling.problem.goal_obs import ACHIEVED, DESIRED, OBSERVATION
from sterling.types import Action, Needs, Obs, Record, Signals, Spec, config


@config
class Config:
    """Defaults are OGBench's."""

    lr: NotNegative = 3e-4  # Adam's step size
    gamma: ShareBelowOne = 0.99  # of the distances of critics' goals: their mean is 1 / (1 - gamma)
    alpha: NotNegative = 0.1  # weight of imitation (OGBench: point mazes 0.03, others 0.003 to 3)
    value_current: Share = 0.0  # of the critics' goals: those of the row itself
    value_future: Share = 1.0  # later in the episode; the rest: from anywhere in the log
    policy_future: Share = 1.0  # of the policy's goals, likewise
    representation: Count = 512  # d: numbers of phi and of psi
    layer_norm: bool = True  # normalise the hidden layers of phi and psi
    batch: Count = 1024  # rows per update
    learn: Count = 1  # updates per iteration
    width: Sizes = 512  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 3  # hidden layers
    activation: Activation = "gelu"  # tanh, relu, silu, elu or gelu


class Score(eqx.Module):
    """One f: of observations with actions, and of goals."""

    phi: MLP
    psi: MLP

    def of_pairs(
        self, x: Float[Array, "row inputs"], goal: Float[Array, "column n"]
    ) -> Float[Array, "row column"]:
        """Return f of every row with every goal."""
        phi, psi = self.phi(x), self.psi(goal)
        return jnp.dot(phi, psi.T) / phi.shape[-1] ** 0.5

    def __call__(
        self, x: Float[Array, "... inputs"], goal: Float[Array, "... n"]
    ) -> Float[Array, "..."]:
        """Return f of each row with its own goal."""
        phi, psi = self.phi(x), self.psi(goal)
        return jnp.sum(phi * psi, -1) / phi.shape[-1] ** 0.5


class Critics(eqx.Module):
    """f_1 and f_2."""

    first: Score
    second: Score

    def least(
        self, x: Float[Array, "... inputs"], goal: Float[Array, "... n"]
    ) -> Float[Array, "..."]:
        """Return min_k f_k of each row with its own goal."""
        return jnp.minimum(self.first(x, goal), self.second(x, goal))


class Nets(eqx.Module):
    """The learned networks."""

    critics: Critics
    policy: UnitPolicy


class State(eqx.Module):
    """Everything that changes during training."""

    nets: Nets
    optimiser: optax.OptState
    config: Config


def needs(config: Config) -> Needs:
    """Ask for rows of a log with goals."""
    return gcivl.ask_for_goals(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` if observations have no goals, and for action spaces
    other than Box."""
    size, goal = goal_sizes("crl", spec)
    actions = supported_actions("crl", spec.action, ("box",), ASKED_FOR_GOALS)
    hidden, kind = hidden_sizes(config.width, config.depth), config.activation

    def network(name: str, inputs: int) -> MLP:
        sizes = (inputs, *hidden, config.representation)
        return MLP.uniform(random_keys.fold(key, name), sizes, kind, layer_norm=config.layer_norm)

    first, second = (
        Score(network(f"{name} phi", size + actions.outputs), network(f"{name} psi", goal))
        for name in ("first", "second")
    )
    inputs = size + goal
    policy = UnitPolicy.create(random_keys.fold(key, "policy"), (inputs, *hidden), actions, kind)
    nets = Nets(Critics(first, second), policy)
    return State(nets, adam().init(nets), config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``."""
    return state.nets.policy.act(with_own_goal(obs), key, explore), {}


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "..."]:
    """Return log pi(a|s, g)."""
    return state.nets.policy.log_prob(with_own_goal(obs), action)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return min_k f_k(s, a, g): not a return, but the logarithm of a ratio of densities."""
    flat = action.reshape(*obs[OBSERVATION].shape[:-1], -1)
    return state.nets.critics.least(with_goal(obs, flat), _number(obs[DESIRED]))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on rows ``(batch, ...)`` with goals."""
    config = state.config
    batch = wanting(batch, batch.beside[GOAL].obs[ACHIEVED])

    def loss(nets: Nets) -> tuple[Float[Array, ""], dict[str, Array]]:
        metrics = critics_loss(nets.critics, batch)
        metrics |= policy_loss(nets.policy, state.nets.critics, batch, config)
        return metrics["loss/value"] + metrics["loss/policy"], metrics

    grads, metrics = jax.grad(loss, has_aux=True)(state.nets)
    direction, optimiser = adam().update(grads, state.optimiser)
    nets = descend(state.nets, direction, config.lr)
    return State(nets, optimiser, config), Signals(metrics)


def critics_loss(critics: Critics, batch: Record) -> dict[str, Array]:
    """Return L_Q of the module docstring, and the share of rows whose own goal has the highest
    score of the batch's goals."""
    x = with_goal(batch.obs, batch.action.reshape(len(batch.mask), -1))
    goal = _number(batch.obs[DESIRED])
    first, second = (f.of_pairs(x, goal) for f in (critics.first, critics.second))
    loss = 0.5 * (told_apart(first, batch.mask) + told_apart(second, batch.mask))
    score = jnp.where(batch.mask[None, :], 0.5 * (first + second), -jnp.inf)
    found = (jnp.diagonal(score) >= jnp.max(score, -1)).astype(jnp.float32)
    return {"loss/value": loss, "value/found": masked_mean(found, batch.mask)}


def told_apart(score: Float[Array, "row row"], mask: Bool[Array, "row"]) -> Float[Array, ""]:
    """Return the mean cross-entropy of telling own goals (the diagonal) from those of other rows,
    over pairs of rows in the mask."""
    sign = 2.0 * jnp.eye(len(mask)) - 1.0
    return masked_mean(-jax.nn.log_sigmoid(sign * score), mask[:, None] & mask[None, :])


def policy_loss(
    policy: UnitPolicy, critics: Critics, batch: Record, config: Config
) -> dict[str, Array]:
    """Return L_pi of the module docstring, and the mean squared distance from logged actions."""
    goal = batch.beside[POLICY_GOAL].obs[ACHIEVED]
    pi, logged = policy(with_goal(batch.obs, goal)), batch.action.reshape(len(goal), -1)
    f = critics.least(with_goal(batch.obs, jnp.clip(pi.mode(), -1.0, 1.0)), _number(goal))
    scale = jax.lax.stop_gradient(masked_mean(jnp.abs(f), batch.mask)) + 1e-6
    each = -f / scale - config.alpha * pi.log_prob(logged)
    distance = jnp.sum(jnp.square(pi.mode() - logged), -1)
    return {
        "loss/policy": masked_mean(each, batch.mask),
        "policy/distance": masked_mean(distance, batch.mask),
    }


def _number(goal: Float[Array, "... n"]) -> Float[Array, "... n"]:
    return goal.astype(jnp.float32)
