"""A reward model, learned from preference pairs (Bradley 1952; Ouyang 2022, arXiv:2203.02155).

    L = -log sigma(r_c - r_r) + centring (r_c + r_r)^2,    averaged over pairs

r, the *score* of a text, is a linear function of the model's last hidden state at the text's last
token; its weights start at 0, so at first no text is preferred. Scores rank answers to one prompt.
Only differences are learned, so ``centring`` keeps their mean near 0 (Eisenstein 2023,
arXiv:2312.09244). It also shrinks differences: in the test's pairs to 0.8 of the true ones (0.94
without). Evidence: tests/algorithms/test_reward_model.py.
"""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.language.gradient_accumulation import (
    new_model,
    new_optimiser,
    summed_metrics,
    update,
    update_options,
)
from sterling.algorithms.language.preference_pairs import Pairs
from sterling.equations.preference_losses import bradley_terry
from sterling.field_types import Count, Limit, NotNegative, Whole
from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.sequence_packing import TokenRows
from sterling.types import Comparisons, Record, Signals, Spec, config

TRAINED_FOLDER = {"lr": 1e-5}  # defaults for a Hugging Face folder


@config
class Config:
    """Defaults suit models of a few million parameters; TRAINED_FOLDER is for large ones."""

    lr: NotNegative = 1e-3  # Adam's step size
    centring: NotNegative = 0.01  # weight of the term that keeps scores near 0; 0: off
    batch: Count = 64  # pairs per update
    learn: Count = 1  # updates per iteration
    rise: Whole = 20  # updates over which the step size rises linearly from 0
    max_grad_norm: Limit = 1.0  # gradients are clipped to this global norm
    weight_decay: NotNegative = 0.0  # AdamW's weight decay
    piece: Whole = 16  # full pairs processed at once (shorter pairs are packed); 0: all, unpacked


class State(eqx.Module):
    """Everything that changes during training."""

    model: LanguageModel
    head: Float[Array, "width"]
    optimiser: optax.OptState  # of model and head
    updates: Int[Array, ""]
    config: Config


def needs(config: Config) -> Comparisons:
    """Ask for pairs of answers, one preferred."""
    return Comparisons(config.batch, config.learn)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create a learner with an untrained model. Raises :class:`Mistake` without a text world."""
    return begin(new_model(random_keys.fold(key, "model"), spec, "reward"), config)


def begin(model: LanguageModel, config: Config) -> State:
    """Create a reward model from ``model``, with a head of 0."""
    head = jnp.zeros(model.embedding.shape[1])
    return State(model, head, new_optimiser((model, head)), jnp.zeros((), jnp.int32), config)


def score(
    state: State, ids: Int[Array, "row time"], lengths: Int[Array, "row"]
) -> Float[Array, "row"]:
    """Return the score r of texts of ``lengths`` tokens (prompt, answer and its end token), padded
    on the right with any token."""
    return _read_scores(state.model, state.head, TokenRows.one_per_row(ids), lengths)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on pairs; of the rows ``(row, token)`` the first half are the chosen ones."""
    config, pairs = state.config, Pairs.from_batch(batch)
    weights, options = (state.model, state.head), update_options(config, state.updates)
    loss = partial(_pair_loss, centring=config.centring)
    (model, head), optimiser, metrics = update(
        weights, state.optimiser, loss, pairs.flat(), pairs, **options
    )
    return State(model, head, optimiser, state.updates + 1, config), Signals(metrics)


def held_out_metrics(state: State, batch: Record) -> dict[str, Array]:
    """Return L of pairs that are not learned from, and the share of them in which the preferred
    answer has the higher score."""
    config, pairs = state.config, Pairs.from_batch(batch)
    loss, piece = partial(_pair_loss, centring=config.centring), config.piece or config.batch
    found = summed_metrics((state.model, state.head), loss, pairs.flat(), pairs, piece)
    return {"loss": found["loss/reward"], "accuracy": found["reward/accuracy"]}


def _pair_loss(
    weights: tuple[LanguageModel, Array],
    lines: TokenRows,
    pairs: Pairs,
    centring: Float[Array, ""] | float,
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Return the pairs' part of L, and metrics."""
    mask = pairs.flat()[1]
    places = jnp.arange(mask.shape[1], dtype=jnp.int32)[None]
    lengths = jnp.max(jnp.where(mask, places, -1), 1) + 2  # mask[i] is of token i + 1
    scores = _read_scores(*weights, lines, lengths).reshape(-1, 2)
    chosen, rejected = scores[:, 0], scores[:, 1]
    loss = jnp.sum(pairs.share * bradley_terry(chosen, rejected, 0.0, centring))
    per_pair = {
        "reward/accuracy": (chosen > rejected).astype(jnp.float32),
        "reward/margin": chosen - rejected,
        "reward/middle": 0.5 * (chosen + rejected),
    }
    metrics = {name: jnp.sum(pairs.share * value) for name, value in per_pair.items()}
    return loss, {"loss/reward": loss} | jax.lax.stop_gradient(metrics)


def _read_scores(
    model: LanguageModel,
    head: Float[Array, "width"],
    lines: TokenRows,
    lengths: Int[Array, "row"],
) -> Float[Array, "row"]:
    """Return the score r of each text, given its length in tokens."""
    scores = lines.by_line(jnp.dot(lines.hidden(model).astype(jnp.float32), head))
    return jnp.take_along_axis(scores, (lengths - 1)[:, None], 1)[:, 0]
