"""Quasimetric reinforcement learning (Wang 2023, arXiv:2304.01203; as QRL in OGBench, Park 2025,
arXiv:2410.20092), for Box actions and goals that are observations.

    distances   L_d  = E[ 100 softplus(5 - d(s, g) / 100) ] + m E[ c ],  c = max(0, d(s, s') - 1)^2
    multiplier  L_m  = m (eps - E[ c ]),  m = exp(log_m)
    model       L_T  = E[ d(z', z) + d(z, z') ] / 2,  z = phi(s) + T(phi(s), a),  z' = phi(s')
    policy      L_pi = -E[ q ] / E|q| - alpha E[ log pi(a|s, g) ],
                q = -d(phi(s) + T(phi(s), mu(s, g)), phi(g))

d(s, g) compares phi(s) with phi(g) by a quasimetric (``equations/quasimetrics.py``). Logged steps
may not be longer than 1, all else is pushed apart: so d becomes the number of steps of the shortest
way through the log, and V = -d. The push ends at about 500 steps. m rises while the mean of c is
above ``eps``, so that a step's length comes to 1 + sqrt(eps). The policy climbs q through the model
and stays near logged actions (DDPG+BC, Fujimoto 2021, arXiv:2106.06860). Goals are drawn by
``needs/goal_rows.py``.

Deviations from OGBench's code: hidden layers are normalised before their activation (there after
it); initial weights are from U(-1/sqrt(inputs), 1/sqrt(inputs)) (there Glorot's).
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.algorithms.goals import gcivl
from sterling.equations.goal_rewards import wanting
from sterling.equations.masked_average import masked_mean
from sterling.equations.quasimetrics import interval_quasimetric
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
from sterling.types import Action, Mistake, Needs, Obs, Record, Signals, Spec, config

FAR, SOFT = 500.0, 100.0  # pushing apart ends about FAR, within a few times SOFT


@config
class Config:
    """Defaults are OGBench's."""

    lr: NotNegative = 3e-4  # Adam's step size
    eps: NotNegative = 0.05  # E[c] that is allowed
    alpha: NotNegative = 0.003  # weight of imitation (OGBench: point mazes 0.0003, others to 0.3)
    gamma: ShareBelowOne = 0.99  # of the distances of values' goals later in the episode, if any
    value_current: Share = 0.0  # of the values' goals: those of the row itself
    value_future: Share = 0.0  # later in the episode; the rest: from anywhere in the log
    policy_future: Share = 1.0  # of the policy's goals, likewise
    representation: Count = 512  # numbers of phi
    intervals: Count = 8  # of these in each component of the quasimetric
    layer_norm: bool = True  # normalise the hidden layers of phi and T
    batch: Count = 1024  # rows per update
    learn: Count = 1  # updates per iteration
    width: Sizes = 512  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 3  # hidden layers
    activation: Activation = "gelu"  # tanh, relu, silu, elu or gelu


class Distance(eqx.Module):
    """phi, the share of mean components in d, and the model T."""

    phi: MLP
    share: Float[Array, ""]  # before a sigmoid
    model: MLP
    intervals: int = eqx.field(static=True)

    def between(self, x: Float[Array, "... d"], y: Float[Array, "... d"]) -> Float[Array, "..."]:
        """Return d of what phi says of two places."""
        return interval_quasimetric(x, y, jax.nn.sigmoid(self.share), self.intervals)

    def after(
        self, x: Float[Array, "... d"], action: Float[Array, "... n"]
    ) -> Float[Array, "... d"]:
        """Return what the model expects phi to say after an action."""
        return x + self.model(jnp.concatenate([x, action], -1))


class Nets(eqx.Module):
    """The learned networks and the multiplier's logarithm."""

    distance: Distance
    policy: UnitPolicy
    log_multiplier: Float[Array, ""]


class State(eqx.Module):
    """Everything that changes during training."""

    nets: Nets
    optimiser: optax.OptState
    config: Config


def needs(config: Config) -> Needs:
    """Ask for rows of a log with goals."""
    return gcivl.ask_for_goals(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` if goals are not observations, for action spaces
    other than Box, and for a representation that is not made of whole components."""
    size, goal = goal_sizes("qrl", spec)
    if size != goal:
        raise Mistake(
            f"qrl measures distances between observations, and goals have {goal} numbers where "
            f"observations have {size}. Use gciql or hiql, or a log whose goals are observations."
        )
    numbers, kind = config.representation, config.activation
    if numbers % config.intervals:
        raise Mistake(
            f"representation={numbers} is not a multiple of intervals={config.intervals}."
            " Change one of them."
        )
    actions = supported_actions("qrl", spec.action, ("box",), ASKED_FOR_GOALS)
    hidden = hidden_sizes(config.width, config.depth)

    def network(name: str, inputs: int) -> MLP:
        sizes = (inputs, *hidden, numbers)
        return MLP.uniform(random_keys.fold(key, name), sizes, kind, layer_norm=config.layer_norm)

    phi, model = network("phi", size), network("model", numbers + actions.outputs)
    distance = Distance(phi, jnp.zeros(()), model, config.intervals)
    both = (size + goal, *hidden)
    policy = UnitPolicy.create(random_keys.fold(key, "policy"), both, actions, kind)
    nets = Nets(distance, policy, jnp.zeros(()))
    return State(nets, adam().init(nets), config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``."""
    return state.nets.policy.act(with_own_goal(obs), key, explore), {}


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "..."]:
    """Return log pi(a|s, g)."""
    return state.nets.policy.log_prob(with_own_goal(obs), action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return V(s, g) = -d(s, g), minus the steps to the goal (not discounted)."""
    distance = state.nets.distance
    return -distance.between(*(distance.phi(_seen(obs[name])) for name in (OBSERVATION, DESIRED)))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on rows ``(batch, ...)`` with goals."""
    config = state.config
    batch = wanting(batch, batch.beside[GOAL].obs[ACHIEVED])

    def loss(nets: Nets) -> tuple[Float[Array, ""], dict[str, Array]]:
        total, metrics = distance_loss(nets, batch, config.eps)
        metrics |= policy_loss(nets.policy, state.nets.distance, batch, config)
        return total + metrics["loss/policy"], metrics

    grads, metrics = jax.grad(loss, has_aux=True)(state.nets)
    direction, optimiser = adam().update(grads, state.optimiser)
    return State(descend(state.nets, direction, config.lr), optimiser, config), Signals(metrics)


def distance_loss(
    nets: Nets, batch: Record, eps: Float[Array, ""] | float
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Return L_d + L_m + L_T of the module docstring, and what they are made of."""
    distance, multiplier = nets.distance, jnp.exp(nets.log_multiplier)
    seen = batch.obs[OBSERVATION], batch.next_obs[OBSERVATION], batch.obs[DESIRED]
    now, later, goal = (distance.phi(_seen(x)) for x in seen)
    away = distance.between(now, goal)
    apart = masked_mean(SOFT * jax.nn.softplus((FAR - away) / SOFT), batch.mask)
    longer = jnp.square(jax.nn.relu(distance.between(now, later) - 1.0))
    excess = masked_mean(longer, batch.mask)
    expected = distance.after(now, batch.action.reshape(len(now), -1))
    errors = distance.between(later, expected) + distance.between(expected, later)
    model = 0.5 * masked_mean(errors, batch.mask)
    fixed = jax.lax.stop_gradient
    total = apart + fixed(multiplier) * excess + multiplier * (eps - fixed(excess)) + model
    metrics = {"loss/value": apart, "loss/model": model, "value/v": -masked_mean(away, batch.mask)}
    return total, metrics | {"constraint/excess": excess, "constraint/multiplier": multiplier}


def policy_loss(
    policy: UnitPolicy, distance: Distance, batch: Record, config: Config
) -> dict[str, Array]:
    """Return L_pi of the module docstring, and the mean squared distance from logged actions."""
    goal = batch.beside[POLICY_GOAL].obs[ACHIEVED]
    pi, logged = policy(with_goal(batch.obs, goal)), batch.action.reshape(len(goal), -1)
    now, wanted = (distance.phi(_seen(x)) for x in (batch.obs[OBSERVATION], goal))
    q = -distance.between(distance.after(now, jnp.clip(pi.mode(), -1.0, 1.0)), wanted)
    scale = jax.lax.stop_gradient(masked_mean(jnp.abs(q), batch.mask)) + 1e-6
    each = -q / scale - config.alpha * pi.log_prob(logged)
    return {
        "loss/policy": masked_mean(each, batch.mask),
        "policy/distance": masked_mean(jnp.sum(jnp.square(pi.mode() - logged), -1), batch.mask),
    }


def _seen(x: Float[Array, "... n"]) -> Float[Array, "... n"]:
    return x.astype(jnp.float32)
