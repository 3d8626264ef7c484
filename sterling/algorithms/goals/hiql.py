"""Hierarchical implicit Q-learning (Park 2023, arXiv:2307.11949): one value function, from which a
high policy learns way points and a low policy actions.

    values   L_V  as GCIVL's (``goals/gcivl.py``), of V(s, phi(s, g))
    low      L_lo = -E[ min(exp(beta_lo (V(s', w) - V(s, w))), 100) log pi_lo(a|s, phi(s, w)) ]
    high     L_hi = -E[ min(exp(beta_hi (V(w, g) - V(s, g))), 100) log pi_hi(phi(s, w)|s, g) ]

phi is a learned representation of a goal as seen from s, ``representation`` numbers on a sphere,
which only L_V trains. In L_lo the way point w lies ``way_steps`` steps later in the episode (at
most at its end), in L_hi it lies there on the way to the goal (at most at the goal). To act, the
high policy's mean is put on the sphere and the low policy is asked for it. Even a noisy V tells
which way point is better many steps ahead, where it cannot tell which action is.

Deviations from OGBench's code (Park 2025, arXiv:2410.20092): hidden layers are normalised before
their activation (there after it); initial weights are from U(-1/sqrt(inputs), 1/sqrt(inputs))
(there Glorot's).
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
from sterling.equations.regression_losses import advantage_weight
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
from sterling.needs.goal_rows import GOAL, POLICY_GOAL, POLICY_WAY_POINT, WAY_POINT
from sterling.nets.action_heads import ASKED_FOR_GOALS, Actions, supported_actions
from sterling.nets.mlp import MLP, hidden_sizes
from sterling.nets.optimiser import adam, descend
from sterling.nets.special_layers.goal_networks import (
    TwinValues,
    UnitPolicy,
    goal_sizes,
    unit_length,
    with_goal,
    with_own_goal,
)
from sterling.problem.goal_obs import ACHIEVED, DESIRED
from sterling.types import Action, Needs, Obs, Record, Signals, Spec, config


@config
class Config:
    """Defaults are OGBench's."""

    lr: NotNegative = 3e-4  # Adam's step size
    gamma: ShareBelowOne = 0.99  # discount per step; also of the distances of values' goals
    expectile: Inside = 0.7  # tau of L_V: near 1 V is that of the best logged steps
    low_beta: NotNegative = 3.0  # inverse temperature of the low policy's weights
    high_beta: NotNegative = 3.0  # inverse temperature of the high policy's weights
    most: Limit = 100.0  # upper bound of the policies' weights
    way_steps: Count = 25  # steps to a way point (OGBench: humanoids 100, manipulation 10)
    representation: Count = 10  # numbers of phi
    tau: Share = 0.005  # rate at which target values follow, per update
    value_current: Share = 0.2  # of the values' goals: those of the row itself
    value_future: Share = 0.5  # later in the episode; the rest: from anywhere in the log
    policy_future: Share = 1.0  # of the high policy's goals, likewise
    layer_norm: bool = True  # normalise the hidden layers of the values and of phi
    batch: Count = 1024  # rows per update
    learn: Count = 1  # updates per iteration
    width: Sizes = 512  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 3  # hidden layers
    activation: Activation = "gelu"  # tanh, relu, silu, elu or gelu


class GoalValues(eqx.Module):
    """V_1 and V_2 of an observation and of the representation of a goal."""

    phi: MLP
    values: TwinValues

    def represent(self, obs: Obs, goal: Float[Array, "... n"]) -> Float[Array, "... numbers"]:
        """Return phi(s, g)."""
        return unit_length(self.phi(with_goal(obs, goal)))

    def __call__(
        self, obs: Obs, goal: Float[Array, "... n"]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Return V_1(s, g) and V_2(s, g)."""
        return self.values(with_goal(obs, self.represent(obs, goal)))

    def mean(self, obs: Obs, goal: Float[Array, "... n"]) -> Float[Array, "..."]:
        """Return V(s, g), the mean of both."""
        return self.values.mean(with_goal(obs, self.represent(obs, goal)))


class Nets(eqx.Module):
    """The learned networks."""

    values: GoalValues
    low: UnitPolicy
    high: UnitPolicy  # its actions are representations of way points


class State(eqx.Module):
    """Everything that changes during training."""

    nets: Nets
    target: GoalValues
    optimiser: optax.OptState
    config: Config


def needs(config: Config) -> Needs:
    """Ask for rows of a log with goals and way points."""
    return gcivl.ask_for_goals(config, config.way_steps)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` if observations have no goals, or for actions that
    it does not support."""
    size, goal = goal_sizes("hiql", spec)
    actions = supported_actions("hiql", spec.action, ("box", "discrete", "multi"), ASKED_FOR_GOALS)
    hidden, kind = hidden_sizes(config.width, config.depth), config.activation
    normed, numbers = {"layer_norm": config.layer_norm}, config.representation
    far, near = (size + goal, *hidden), (size + numbers, *hidden)
    values = GoalValues(
        MLP.uniform(random_keys.fold(key, "phi"), (*far, numbers), kind, **normed),
        TwinValues.create(random_keys.fold(key, "values"), near, kind, **normed),
    )
    nets = Nets(
        values,
        UnitPolicy.create(random_keys.fold(key, "low"), near, actions, kind),
        UnitPolicy.create(random_keys.fold(key, "high"), far, Actions("box", (numbers,)), kind),
    )
    return State(nets, jax.tree.map(jnp.copy, values), adam().init(nets), config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the low policy for a sampled way point, or modes without ``explore``."""
    way = state.nets.high(with_own_goal(obs))
    point = way.sample(random_keys.fold(key, "way point")) if explore else way.mode()
    return state.nets.low.act(with_goal(obs, unit_length(point)), key, explore), {}


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return V(s, g), the discounted sum of -1 until the goal is reached."""
    return state.nets.values.mean(obs, obs[DESIRED])


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on rows ``(batch, ...)`` with goals and way points."""
    config = state.config
    batch = wanting(batch, batch.beside[GOAL].obs[ACHIEVED])

    def loss(nets: Nets) -> tuple[Float[Array, ""], dict[str, Array]]:
        goal = batch.obs[DESIRED]
        before, after = state.target(batch.obs, goal), state.target(batch.next_obs, goal)
        now = nets.values(batch.obs, goal)
        of_values, value = gcivl.value_loss(now, before, after, batch, config)
        metrics = {"loss/v": of_values, "value/v": value}
        metrics |= low_loss(nets.low, state.nets.values, batch, config)
        metrics |= high_loss(nets.high, state.nets.values, batch, config)
        return of_values + metrics["loss/low"] + metrics["loss/high"], metrics

    grads, metrics = jax.grad(loss, has_aux=True)(state.nets)
    direction, optimiser = adam().update(grads, state.optimiser)
    nets = descend(state.nets, direction, config.lr)
    target = polyak(state.target, nets.values, config.tau)
    return State(nets, target, optimiser, config), Signals(metrics)


def low_loss(
    low: UnitPolicy, values: GoalValues, batch: Record, config: Config
) -> dict[str, Array]:
    """Return L_lo of the module docstring, and the mean weight."""
    point = batch.beside[WAY_POINT].obs[ACHIEVED]
    gain = values.mean(batch.next_obs, point) - values.mean(batch.obs, point)
    weight = advantage_weight(gain, config.low_beta, config.most)
    asked = with_goal(batch.obs, values.represent(batch.obs, point))
    each = weight * low.log_prob(asked, batch.action)
    return {
        "loss/low": -masked_mean(each, batch.mask),
        "policy/weight": masked_mean(weight, batch.mask),
    }


def high_loss(
    high: UnitPolicy, values: GoalValues, batch: Record, config: Config
) -> dict[str, Array]:
    """Return L_hi of the module docstring, and the mean weight."""
    goal, there = batch.beside[POLICY_GOAL].obs[ACHIEVED], batch.beside[POLICY_WAY_POINT].obs
    point = there[ACHIEVED]
    gain = values.mean(there, goal) - values.mean(batch.obs, goal)
    weight = advantage_weight(gain, config.high_beta, config.most)
    each = weight * high.log_prob(with_goal(batch.obs, goal), values.represent(batch.obs, point))
    return {
        "loss/high": -masked_mean(each, batch.mask),
        "policy/high_weight": masked_mean(weight, batch.mask),
    }
