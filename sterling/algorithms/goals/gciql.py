"""Goal-conditioned implicit Q-learning (Kostrikov 2022, arXiv:2110.06169, with goals; as GCIQL in
OGBench, Park 2025, arXiv:2410.20092), for Box actions.

    value     L_V  = E[ |tau - 1(u < 0)| u^2 ],      u = min_i Q'_i(s, a, g) - V(s, g)
    critics   L_Q  = sum_i E[ (Q_i(s, a, g) - r - g V(s', g))^2 ]
    policy    L_pi = -E[ min_i Q_i(s, mu(s, g), g) ] / E|min_i Q_i| - alpha E[ log pi(a|s, g) ]

r is -1 and the discount g is gamma, until the goal g is reached (then both 0); tau is
``expectile``; Q' follows Q at rate ``tau`` per update; pi is a normal distribution of deviation 1
around mu, which climbs Q and stays near logged actions (DDPG+BC, Fujimoto 2021, arXiv:2106.06860).
Values and policy have goals of their own (``needs/goal_rows.py``).

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
from sterling.equations.polyak import polyak
from sterling.equations.regression_losses import expectile_loss
from sterling.equations.value_losses import td_target
from sterling.field_types import (
    Activation,
    Count,
    Depth,
    Inside,
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
    TwinValues,
    UnitPolicy,
    goal_sizes,
    with_goal,
    with_own_goal,
)
from sterling.problem.goal_obs import ACHIEVED
from sterling.types import Action, Needs, Obs, Record, Signals, Spec, config


@config
class Config:
    """Defaults are OGBench's."""

    lr: NotNegative = 3e-4  # Adam's step size
    gamma: ShareBelowOne = 0.99  # discount per step; also of the distances of values' goals
    expectile: Inside = 0.9  # tau of L_V: near 1 V is that of the best logged actions
    alpha: NotNegative = 0.3  # weight of imitation (OGBench: point mazes 0.003, others 0.3 to 3)
    tau: Share = 0.005  # rate at which target critics follow, per update
    value_current: Share = 0.2  # of the values' goals: those of the row itself
    value_future: Share = 0.5  # later in the episode; the rest: from anywhere in the log
    policy_future: Share = 1.0  # of the policy's goals, likewise
    layer_norm: bool = True  # normalise the hidden layers of value and critics
    batch: Count = 1024  # rows per update
    learn: Count = 1  # updates per iteration
    width: Sizes = 512  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 3  # hidden layers
    activation: Activation = "gelu"  # tanh, relu, silu, elu or gelu


class Nets(eqx.Module):
    """The learned networks."""

    value: MLP
    critics: TwinValues  # of an observation, a goal and an action
    policy: UnitPolicy


class State(eqx.Module):
    """Everything that changes during training."""

    nets: Nets
    target: TwinValues
    optimiser: optax.OptState
    config: Config


def needs(config: Config) -> Needs:
    """Ask for rows of a log with goals."""
    return gcivl.ask_for_goals(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` if observations have no goals, and for action spaces
    other than Box."""
    inputs = sum(goal_sizes("gciql", spec))
    actions = supported_actions("gciql", spec.action, ("box",), ASKED_FOR_GOALS)
    hidden, kind = hidden_sizes(config.width, config.depth), config.activation
    value = MLP.uniform(
        *(random_keys.fold(key, "value"), (inputs, *hidden, 1), kind), layer_norm=config.layer_norm
    )
    critics = TwinValues.create(
        *(random_keys.fold(key, "critics"), (inputs + actions.outputs, *hidden), kind),
        layer_norm=config.layer_norm,
    )
    policy = UnitPolicy.create(random_keys.fold(key, "policy"), (inputs, *hidden), actions, kind)
    nets = Nets(value, critics, policy)
    return State(nets, jax.tree.map(jnp.copy, critics), adam().init(nets), config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``."""
    return state.nets.policy.act(with_own_goal(obs), key, explore), {}


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "..."]:
    """Return log pi(a|s, g)."""
    return state.nets.policy.log_prob(with_own_goal(obs), action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return V(s, g), the discounted sum of -1 until the goal is reached."""
    return state.nets.value(with_own_goal(obs))[..., 0]


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return min_i Q_i(s, a, g)."""
    x = with_own_goal(obs)
    both = jnp.concatenate([x, action.reshape(*x.shape[:-1], -1)], -1)
    return jnp.minimum(*state.nets.critics(both))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on rows ``(batch, ...)`` with goals."""
    config = state.config
    batch = wanting(batch, batch.beside[GOAL].obs[ACHIEVED])

    def loss(nets: Nets) -> tuple[Float[Array, ""], dict[str, Array]]:
        metrics = value_losses(nets, state, batch)
        metrics |= policy_loss(nets.policy, state.nets.critics, batch, config)
        total = metrics["loss/v"] + metrics["loss/value"] + metrics["loss/policy"]
        return total, metrics

    grads, metrics = jax.grad(loss, has_aux=True)(state.nets)
    direction, optimiser = adam().update(grads, state.optimiser)
    nets = descend(state.nets, direction, config.lr)
    target = polyak(state.target, nets.critics, config.tau)
    return State(nets, target, optimiser, config), Signals(metrics)


def value_losses(nets: Nets, state: State, batch: Record) -> dict[str, Array]:
    """Return L_V and L_Q of the module docstring, and the mean value."""
    config, x = state.config, with_own_goal(batch.obs)
    both = jnp.concatenate([x, batch.action.reshape(len(x), -1)], -1)
    now = nets.value(x)[..., 0]
    error = jnp.minimum(*state.target(both)) - now
    after = state.nets.value(with_own_goal(batch.next_obs))[..., 0]
    y = td_target(batch.reward, config.gamma * batch.discount, after)
    errors = [jnp.square(q - y) for q in nets.critics(both)]
    return {
        "loss/v": masked_mean(expectile_loss(error, config.expectile), batch.mask),
        "loss/value": masked_mean(errors[0] + errors[1], batch.mask),
        "value/v": masked_mean(now, batch.mask),
    }


def policy_loss(
    policy: UnitPolicy, critics: TwinValues, batch: Record, config: Config
) -> dict[str, Array]:
    """Return L_pi of the module docstring, and the mean squared distance from logged actions."""
    x = with_goal(batch.obs, batch.beside[POLICY_GOAL].obs[ACHIEVED])
    pi, logged = policy(x), batch.action.reshape(len(x), -1)
    q = jnp.minimum(*critics(jnp.concatenate([x, jnp.clip(pi.mode(), -1.0, 1.0)], -1)))
    scale = jax.lax.stop_gradient(masked_mean(jnp.abs(q), batch.mask)) + 1e-6
    each = -q / scale - config.alpha * pi.log_prob(logged)
    distance = jnp.sum(jnp.square(pi.mode() - logged), -1)
    return {
        "loss/policy": masked_mean(each, batch.mask),
        "policy/distance": masked_mean(distance, batch.mask),
    }
