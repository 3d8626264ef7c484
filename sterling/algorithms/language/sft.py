"""Supervised fine-tuning: a language model learns to imitate given answers.

    L = - sum_t log pi(y_t | y_<t) / number of t,    t the tokens of the answers

Prompts' tokens are input only. The denominator counts the tokens of the whole batch, so an answer
counts by its length (a mean of per-answer means would favour short ones).
Evidence: benchmarks/language, tests/contract/test_language.py.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.language.gradient_accumulation import Texts as TokensAndMask
from sterling.algorithms.language.gradient_accumulation import (
    answer_mask,
    batch_tokens,
    new_model,
    new_optimiser,
    summed_metrics,
    update,
    update_options,
)
from sterling.equations.token_averages import token_weights, weighted_sum
from sterling.field_types import Count, Limit, NotNegative, Whole
from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.sequence_packing import TokenRows
from sterling.types import Record, Signals, Spec, Texts, config

TRAINED_FOLDER = {"lr": 1e-5}  # defaults for a Hugging Face folder


@config
class Config:
    """Defaults suit models of a few million parameters; TRAINED_FOLDER is for large ones."""

    lr: NotNegative = 1e-3  # Adam's step size
    batch: Count = 64  # texts per update
    learn: Count = 1  # updates per iteration
    rise: Whole = 20  # updates over which the step size rises linearly from 0
    max_grad_norm: Limit = 1.0  # gradients are clipped to this global norm
    weight_decay: NotNegative = 0.0  # AdamW's weight decay
    piece: Whole = 16  # full texts processed at once (shorter texts are packed); 0: all, unpacked
    limit: Count = 32  # longest answer in evaluation, in tokens


class State(eqx.Module):
    """Everything that changes during training."""

    model: LanguageModel
    optimiser: optax.OptState
    updates: Int[Array, ""]
    config: Config


def needs(config: Config) -> Texts:
    """Ask for texts to imitate."""
    return Texts(config.batch, config.learn)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create a learner with an untrained model. Raises :class:`Mistake` without a text world."""
    return begin(new_model(random_keys.fold(key, "model"), spec, "sft"), config)


def begin(model: LanguageModel, config: Config) -> State:
    """Create a learner that continues from ``model``."""
    return State(model, new_optimiser(model), jnp.zeros((), jnp.int32), config)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on texts ``(row, token)``."""
    config, options = state.config, update_options(state.config, state.updates)
    texts, share = _texts_and_weights(batch)
    model, optimiser, metrics = update(state.model, state.optimiser, loss, texts, share, **options)
    return State(model, optimiser, state.updates + 1, config), Signals(metrics)


def held_out_metrics(state: State, batch: Record) -> dict[str, Array]:
    """Return L of texts ``(row, token)`` that are not learned from, and its exponential."""
    piece = state.config.piece or state.config.batch
    found = summed_metrics(state.model, loss, *_texts_and_weights(batch), piece)["loss/text"]
    return {"loss": found, "perplexity": jnp.exp(found)}


def _texts_and_weights(batch: Record) -> tuple[TokensAndMask, Float[Array, "row token"]]:
    """Return a batch's tokens with the mask of those to learn, and each one's weight in L."""
    mask = answer_mask(batch)
    share = token_weights(mask, jnp.zeros(mask.shape[0], jnp.int32), "token")
    return (batch_tokens(batch), mask), share


def loss(
    model: LanguageModel, lines: TokenRows, share: Float[Array, "row token"]
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Return L of the module docstring, and metrics."""
    log_prob, entropy = lines.log_prob(model)
    total = -weighted_sum(log_prob, share)
    return total, {"loss/text": total, "policy/entropy": weighted_sum(entropy, share)}
