"""Model-based offline policy optimisation (Yu 2020, arXiv:2005.13239): MBPO from a log alone, whose
model's rewards are lower where the model is unsure.

    reward   r'(s, a) = r(s, a) - lambda max_i || Sigma_i(s, a) ||

Sigma_i are the standard deviations that member i of the ensemble predicts. The models are fitted
first, then SAC learns from their rollouts, which begin at rows of the log.

    sterling train examples/methods/mopo.py Pendulum-v1 --data data/random --updates 15_000
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from sterling.algorithms.model_based import mbpo
from sterling.algorithms.model_based.mbpo import (
    State,
    act,
    action_value,
    init,
    learn,
    learn_model,
    log_prob,
    value,
)
from sterling.field_types import Count, NotNegative
from sterling.nets.ensemble import Ensemble
from sterling.types import Needs, Record, config

__all__ = ["Config", "State", "act", "action_value", "imagine", "init", "learn", "learn_model",
           "log_prob", "needs", "value"]  # fmt: skip


@config
class Config(mbpo.Config):
    """MBPO's fields, and the penalty."""

    penalty: NotNegative = 1.0  # lambda
    horizon: Count = 5  # steps of a model rollout
    branches: Count = 20  # model rollouts started per iteration and elite model
    kept: Count = 50_000  # capacity for model-generated rows
    model_updates: Count = 5_000  # updates of the models, all in the first iteration
    model_every: Count = 1


def needs(config: Config) -> Needs:
    """Ask for rows of the log for the models, then for model rollouts and rows for the policy."""
    asked = mbpo.needs(config)
    model, policy = asked.feeds
    feeds = (dataclasses.replace(model, until=1), dataclasses.replace(policy, after=1))
    return dataclasses.replace(asked, feeds=feeds)


def imagine(
    state: State, rows: Record, valid: Bool[Array, "branch"], key: Key[Array, ""]
) -> Record:
    """Generate branches ``(time, branch, ...)`` from rows of the log, with penalised rewards."""
    made = mbpo.imagine(state, rows, valid, key)
    reward = made.reward - state.config.penalty * uncertainty(state, made)
    return dataclasses.replace(made, reward=reward)


def uncertainty(state: State, rows: Record) -> Float[Array, "time branch"]:
    """Return max_i ||Sigma_i||, in units of observations and rewards."""
    model, actions = state.model, state.policy.actor.actions
    x = jnp.concatenate([model.seen(rows.obs), actions.encode(rows.action)], -1)
    prediction = Ensemble(model.nets)(x.reshape(-1, x.shape[-1]))
    unit = model.made.deviation.reshape(1, 1, -1)
    norm = jnp.linalg.norm(jnp.exp(prediction.log_std) * unit, axis=-1)
    return norm.max(0).reshape(rows.reward.shape)
