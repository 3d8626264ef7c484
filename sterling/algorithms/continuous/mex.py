"""Maximize to explore (Liu 2023, arXiv:2305.18258), its model-free form on TD3.

    target      y     = r + g min_i Q'_i(s', a')
    critics     L_Q   = 1/2 sum_i E[ w (Q_i(s, a) - y)^2 ] - eta sum_i E[ Q_i(s, mu(s)) ]
    actor       L_mu  = -E[ Q_1(s, mu(s)) ]                           (every ``delay`` updates)

All else, a' included, is td3's. Among value functions that explain the transitions equally well the
critics become those that promise most, so the actor tries what is not yet contradicted by data:
with eta = 0 this is td3, and conservative Q-learning (cql) has the opposite sign. In a table of
values that of the policy's action is too high by eta divided by the action's share among its
state's transitions, so what is promised fades as the action is tried.

Deviations from the paper: the objective of its theory promises the value of initial states, this
that of the batch's states, as TD3's actor does; the policy is given to the critics, and improves by
the actor's own steps, in place of a maximum over both at once.
Evidence: probe worlds and an oracle in tests/contract/; no gain in a first trial on
MountainCarContinuous (docs/exploration.md), none at published scale yet.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling.algorithms.online import td3
from sterling.equations.masked_average import masked_mean
from sterling.field_types import NotNegative
from sterling.nets.action_heads import ONLINE, supported_actions
from sterling.nets.q_ensemble import TwinCritics
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config

can_use_unseen = True  # by the critics


@config
class Config(td3.Config):
    """Defaults are those of td3."""

    optimism: NotNegative = 0.005  # eta: weight of what the critics promise, in units of returns


State = td3.State


def needs(config: Config) -> Transitions:
    """Ask for transitions from a uniform or prioritised replay buffer."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for action spaces other than Box."""
    supported_actions("mex", spec.action, ("box",), ONLINE)
    return td3.init(key, spec, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the actor's action in the space's own shape, with noise where ``explore`` holds."""
    return td3.act(state, obs, key, explore)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return min_i Q_i(s, mu(s)), the smaller critic's value of the actor's action."""
    return td3.value(state, obs)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return min_i Q_i(s, a)."""
    return td3.action_value(state, obs, action)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the critics once on transitions ``(batch, ...)``, every ``delay``-th time also the
    actor and the targets."""
    y = td3.target(state, batch, key)

    def of_critics(critics: TwinCritics, batch: Record, y: Float[Array, "batch"]) -> Any:
        return critic_loss(critics, batch, y, state)

    return td3.learn_from_targets(state, batch, y, td3.actor_loss, of_critics)


def critic_loss(
    critics: TwinCritics, batch: Record, y: Float[Array, "batch"], state: Any
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L_Q of the module docstring, metrics, and |TD error| per row (mean over critics)."""
    loss, (metrics, error) = td3.critic_loss(critics, batch, y)
    action = jax.lax.stop_gradient(state.nets.actor(critics.torso(batch.obs)))
    promised = jnp.stack(critics.q_values(batch.obs, action)).sum(0)
    promise = masked_mean(promised, batch.mask)
    total = loss - state.config.optimism * promise
    return total, (metrics | {"value/promised": promise / 2.0}, error)
