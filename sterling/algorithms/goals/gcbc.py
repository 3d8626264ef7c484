"""Goal-conditioned behaviour cloning (Ghosh 2021, "GCSL", arXiv:1912.06088; as GCBC in OGBench,
Park 2025, arXiv:2410.20092).

    policy   L_pi = -E[ log pi(a|s, g) ],    g achieved later in the episode of (s, a)

What was done before a goal was reached is imitated as the way to it; nothing says which of several
ways is short. Goals are drawn as ``needs/goal_rows.py`` says. For Box actions pi is a
normal distribution of deviation 1.

Deviation from OGBench's code: initial weights are from U(-1/sqrt(inputs), 1/sqrt(inputs)) (there
Glorot's, and small in the last layer).
"""

from __future__ import annotations

import equinox as eqx
import jax
import optax
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.equations.masked_average import masked_mean
from sterling.field_types import Activation, Count, Depth, NotNegative, Share, Sizes
from sterling.needs.goal_rows import POLICY_GOAL, drawn_goal
from sterling.nets.action_heads import ASKED_FOR_GOALS, supported_actions
from sterling.nets.mlp import hidden_sizes
from sterling.nets.optimiser import adam, descend
from sterling.nets.special_layers.goal_networks import (
    UnitPolicy,
    goal_sizes,
    with_goal,
    with_own_goal,
)
from sterling.problem.goal_obs import ACHIEVED
from sterling.types import Action, Beside, Feed, Needs, Obs, Record, Signals, Spec, config


@config
class Config:
    """Defaults are OGBench's."""

    lr: NotNegative = 3e-4  # Adam's step size
    policy_future: Share = 1.0  # goals from later in the episode; the rest: from anywhere
    batch: Count = 1024  # rows per update
    learn: Count = 1  # updates per iteration
    width: Sizes = 512  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 3  # hidden layers
    activation: Activation = "gelu"  # tanh, relu, silu, elu or gelu


class State(eqx.Module):
    """Everything that changes during training."""

    policy: UnitPolicy
    optimiser: optax.OptState
    config: Config


def needs(config: Config) -> Needs:
    """Ask for rows of a log with goals."""
    goal = Beside(POLICY_GOAL, drawn_goal(0.0, float(config.policy_future)))
    return Needs(feeds=(Feed(batch=config.batch, updates=config.learn, beside=(goal,)),))


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` if observations have no goals, or for actions that
    it does not support."""
    inputs = sum(goal_sizes("gcbc", spec))
    actions = supported_actions("gcbc", spec.action, ("box", "discrete", "multi"), ASKED_FOR_GOALS)
    sizes = (inputs, *hidden_sizes(config.width, config.depth))
    policy_key = random_keys.fold(key, "policy")
    policy = UnitPolicy.create(policy_key, sizes, actions, config.activation)
    return State(policy, adam().init(policy), config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``."""
    return state.policy.act(with_own_goal(obs), key, explore), {}


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "..."]:
    """Return log pi(a|s, g)."""
    return state.policy.log_prob(with_own_goal(obs), action)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on rows ``(batch, ...)`` with goals."""
    x = with_goal(batch.obs, batch.beside[POLICY_GOAL].obs[ACHIEVED])

    def loss(policy: UnitPolicy) -> Float[Array, ""]:
        return -masked_mean(policy.log_prob(x, batch.action), batch.mask)

    found, grads = jax.value_and_grad(loss)(state.policy)
    direction, optimiser = adam().update(grads, state.optimiser)
    policy = descend(state.policy, direction, state.config.lr)
    return State(policy, optimiser, state.config), Signals({"loss/policy": found})
