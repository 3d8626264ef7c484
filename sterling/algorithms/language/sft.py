"""Supervised fine-tuning: a language model learns to say what was said.

    L = - sum_t log pi(y_t | y_<t) / number of t,    t the tokens of the answers

The prompts' tokens are read and not learned. The denominator is that of the whole batch, whatever
pieces it is read in, so long answers count by their tokens (the mean of means would favour short
ones). Evidence: benchmarks/language, tests/contract/test_language.py.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import keys
from sterling.algorithms.language import teaching
from sterling.equations.aggregate import weighted_sum, weights
from sterling.field_types import Count, Limit, NotNegative, Whole
from sterling.language.generate import Answers, Prompts, generate
from sterling.language.model import LanguageModel
from sterling.language.packing import Lines
from sterling.nets.optimiser import risen
from sterling.types import Record, Signals, Spec, Texts, config


@config
class Config:
    """Defaults for models of up to some million parameters; large ones want lr of 1e-5."""

    lr: NotNegative = 1e-3  # Adam's step size
    batch: Count = 64  # texts per update
    learn: Count = 1  # updates per iteration
    rise: Whole = 20  # updates over which the step size rises
    max_grad_norm: Limit = 1.0  # larger gradients are scaled down to it
    weight_decay: NotNegative = 0.0  # AdamW's
    piece: Whole = 16  # full texts read at a time, shorter ones packed together; 0: all, unpacked
    limit: Count = 32  # tokens of one answer, when the model is judged


class State(eqx.Module):
    """Everything that changes."""

    model: LanguageModel
    optimiser: optax.OptState
    updates: Int[Array, ""]
    config: Config


def needs(config: Config) -> Texts:
    """Texts to imitate."""
    return Texts(config.batch, config.learn)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new model that knows nothing; raises :class:`Mistake` outside of worlds of text."""
    return begin(teaching.model_of(keys.fold(key, "model"), spec, "sft"), config)


def begin(model: LanguageModel, config: Config) -> State:
    """A learner that goes on from ``model``."""
    return State(model, teaching.optimiser(model), jnp.zeros((), jnp.int32), config)


def act(
    state: State, obs: Prompts, key: Key[Array, ""], explore: bool
) -> tuple[Answers, dict[str, Array]]:
    """Answers to prompts; without ``explore`` always the likeliest token."""
    return generate(state.model, obs if explore else obs.greedy(), key), {}


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update on texts ``(row, token)``."""
    config, mask = state.config, teaching.said(batch)
    share = weights(mask, jnp.zeros(mask.shape[0], jnp.int32), "token")
    model, optimiser, found = teaching.update(
        *(state.model, state.optimiser, loss, (teaching.tokens(batch), mask), share),
        lr=risen(config.lr, state.updates, config.rise),
        max_norm=config.max_grad_norm,
        decay=config.weight_decay,
        piece=config.piece,
    )
    return State(model, optimiser, state.updates + 1, config), Signals(found)


def loss(
    model: LanguageModel, lines: Lines, share: Float[Array, "row token"]
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """L of the module docstring, and the mean entropy."""
    log_prob, entropy = lines.log_prob(model)
    total = -weighted_sum(log_prob, share)
    return total, {"loss/text": total, "policy/entropy": weighted_sum(entropy, share)}
