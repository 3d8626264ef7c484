"""Goal-conditioned implicit V-learning, without Q (OGBench's GCIVL, Park 2025, arXiv:2410.20092;
the values are those of HIQL, Park 2023, arXiv:2307.11949, section 4.1).

    advantage  A    = r + g min_i V'_i(s', g) - mean_i V'_i(s, g)
    values     L_V  = sum_i E[ |tau - 1(A < 0)| (r + g V'_i(s', g) - V_i(s, g))^2 ]
    policy     L_pi = -E[ min(exp(beta (V(s', g) - V(s, g))), 100) log pi(a|s, g) ]

r is -1 and the discount g is gamma, until the goal g is reached (then both 0); tau is
``expectile``; V is the mean of both values; V'_i follow at rate ``tau`` per update. Values and
policy have goals of their own (``needs/goal_rows.py``). Without actions in the
values, luck counts as merit: V is too high where the same action can lead to different states.

Deviations from OGBench's code: hidden layers are normalised before their activation (there after
it); initial weights are from U(-1/sqrt(inputs), 1/sqrt(inputs)) (there Glorot's).
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.equations.goal_rewards import wanting
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.regression_losses import action_free_loss, advantage_weight
from sterling.equations.value_losses import td_target
from sterling.field_types import (
    Activation,
    Count,
    Depth,
    Inside,
    Limit,
    NotNegative,
    Share,
    ShareBelowOne,
    Sizes,
)
from sterling.needs.goal_rows import (
    GOAL,
    POLICY_GOAL,
    POLICY_WAY_POINT,
    WAY_POINT,
    drawn_goal,
)
from sterling.nets.action_heads import ASKED_FOR_GOALS, supported_actions
from sterling.nets.mlp import hidden_sizes
from sterling.nets.optimiser import adam, descend
from sterling.nets.special_layers.goal_networks import (
    TwinValues,
    UnitPolicy,
    goal_sizes,
    with_goal,
    with_own_goal,
)
from sterling.problem.goal_obs import ACHIEVED
from sterling.types import (
    Action,
    Beside,
    Feed,
    Later,
    Needs,
    Obs,
    Record,
    Signals,
    Spec,
    config,
)


@config
class Config:
    """Defaults are OGBench's."""

    lr: NotNegative = 3e-4  # Adam's step size
    gamma: ShareBelowOne = 0.99  # discount per step; also of the distances of values' goals
    expectile: Inside = 0.9  # tau of L_V: near 1 V is that of the best logged steps
    beta: NotNegative = 10.0  # inverse temperature of the policy's weights
    most: Limit = 100.0  # upper bound of the policy's weights
    tau: Share = 0.005  # rate at which target values follow, per update
    value_current: Share = 0.2  # of the values' goals: those of the row itself
    value_future: Share = 0.5  # later in the episode; the rest: from anywhere in the log
    policy_future: Share = 1.0  # of the policy's goals, likewise
    layer_norm: bool = True  # normalise the hidden layers of the values
    batch: Count = 1024  # rows per update
    learn: Count = 1  # updates per iteration
    width: Sizes = 512  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 3  # hidden layers
    activation: Activation = "gelu"  # tanh, relu, silu, elu or gelu


class Nets(eqx.Module):
    """The learned networks."""

    values: TwinValues
    policy: UnitPolicy


class State(eqx.Module):
    """Everything that changes during training."""

    nets: Nets
    target: TwinValues
    optimiser: optax.OptState
    config: Config


def needs(config: Config) -> Needs:
    """Ask for rows of a log with goals."""
    return ask_for_goals(config)


def ask_for_goals(config: Any, ahead: int = 0) -> Needs:
    """Ask for rows of a log with goals, and way points so many steps ``ahead`` (0: none), for any
    Config with this file's shares of goals."""
    current, future = float(config.value_current), float(config.value_future)
    beside: tuple[Beside, ...] = (
        Beside(GOAL, drawn_goal(current, future, float(config.gamma))),
        Beside(POLICY_GOAL, drawn_goal(0.0, float(config.policy_future))),
    )
    if ahead:
        on_the_way = Later(ahead, not_after=POLICY_GOAL)
        beside += (Beside(WAY_POINT, Later(ahead)), Beside(POLICY_WAY_POINT, on_the_way))
    return Needs(feeds=(Feed(batch=config.batch, updates=config.learn, beside=beside),))


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` if observations have no goals, or for actions that
    it does not support."""
    inputs = sum(goal_sizes("gcivl", spec))
    actions = supported_actions("gcivl", spec.action, ("box", "discrete", "multi"), ASKED_FOR_GOALS)
    sizes = (inputs, *hidden_sizes(config.width, config.depth))
    values = TwinValues.create(
        *(random_keys.fold(key, "values"), sizes, config.activation), layer_norm=config.layer_norm
    )
    policy_key = random_keys.fold(key, "policy")
    nets = Nets(values, UnitPolicy.create(policy_key, sizes, actions, config.activation))
    return State(nets, jax.tree.map(jnp.copy, values), adam().init(nets), config)


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
    return state.nets.values.mean(with_own_goal(obs))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on rows ``(batch, ...)`` with goals."""
    config = state.config
    batch = wanting(batch, batch.beside[GOAL].obs[ACHIEVED])
    goal = batch.beside[POLICY_GOAL].obs[ACHIEVED]

    def loss(nets: Nets) -> tuple[Float[Array, ""], dict[str, Array]]:
        x, next_x = with_own_goal(batch.obs), with_own_goal(batch.next_obs)
        before, after = state.target(x), state.target(next_x)
        of_values, value = value_loss(nets.values(x), before, after, batch, config)
        x, next_x = with_goal(batch.obs, goal), with_goal(batch.next_obs, goal)
        gain = state.nets.values.mean(next_x) - state.nets.values.mean(x)
        weight = advantage_weight(gain, config.beta, config.most)
        log_p = nets.policy.log_prob(x, batch.action)
        of_policy = -masked_mean(weight * log_p, batch.mask)
        metrics = {"loss/v": of_values, "value/v": value, "loss/policy": of_policy}
        metrics |= {"policy/weight": masked_mean(weight, batch.mask)}
        return of_values + of_policy, metrics

    grads, metrics = jax.grad(loss, has_aux=True)(state.nets)
    direction, optimiser = adam().update(grads, state.optimiser)
    nets = descend(state.nets, direction, config.lr)
    target = polyak(state.target, nets.values, config.tau)
    return State(nets, target, optimiser, config), Signals(metrics)


def value_loss(
    values: tuple[Float[Array, "batch"], Float[Array, "batch"]],
    before: tuple[Float[Array, "batch"], Float[Array, "batch"]],
    after: tuple[Float[Array, "batch"], Float[Array, "batch"]],
    batch: Record,
    config: Any,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return L_V of the module docstring and the mean value, given V_i(s, g), V'_i(s, g) and
    V'_i(s', g)."""
    discount = config.gamma * batch.discount
    old, now = (0.5 * (one + other) for one, other in (before, values))
    advantage = td_target(batch.reward, discount, jnp.minimum(*after)) - old
    first, second = (
        td_target(batch.reward, discount, new) - now for new, now in zip(after, values, strict=True)
    )
    each = action_free_loss((first, second), advantage, config.expectile)
    return masked_mean(each, batch.mask), masked_mean(now, batch.mask)
