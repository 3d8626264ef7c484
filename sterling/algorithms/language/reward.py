"""A reward model: which of two answers was preferred (Bradley 1952; Ouyang 2022, arXiv:2203.02155).

    L = -log sigma(r_c - r_r) + centring (r_c + r_r)^2,    averaged over pairs

r, the *score* of a text, is read off the model's last layer at the text's last token by one vector
of weights, which begin at 0: no text is preferred at first. Scores tell the order of answers to one
prompt. Only differences are learned, so ``centring`` keeps their middle near 0 (Eisenstein 2023,
arXiv:2312.09244); differences shrink by it as well, in the test's pairs to 0.8 of the true ones
(0.94 without). Evidence: tests/algorithms/test_reward_model.py.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import keys
from sterling.algorithms.language import teaching
from sterling.algorithms.language.pairs import Pairs
from sterling.equations.preference import bradley_terry
from sterling.field_types import Count, Limit, NotNegative, Whole
from sterling.language.generate import Answers, Prompts, generate
from sterling.language.model import LanguageModel
from sterling.language.packing import Lines
from sterling.nets.optimiser import risen
from sterling.types import Comparisons, Record, Signals, Spec, config


@config
class Config:
    """Defaults for models of up to some million parameters; large ones want lr of 1e-5."""

    lr: NotNegative = 1e-3  # Adam's step size
    centring: NotNegative = 0.01  # keeps scores near 0; 0: free to drift
    batch: Count = 64  # pairs per update
    learn: Count = 1  # updates per iteration
    rise: Whole = 20  # updates over which the step size rises
    max_grad_norm: Limit = 1.0  # larger gradients are scaled down to it
    weight_decay: NotNegative = 0.0  # AdamW's
    piece: Whole = 16  # full pairs read at a time, shorter ones packed together; 0: all, unpacked


class State(eqx.Module):
    """Everything that changes."""

    model: LanguageModel
    head: Float[Array, "width"]
    optimiser: optax.OptState  # of both
    updates: Int[Array, ""]
    config: Config


def needs(config: Config) -> Comparisons:
    """Pairs of answers."""
    return Comparisons(config.batch, config.learn)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new model that knows nothing; raises :class:`Mistake` outside of worlds of text."""
    return begin(teaching.model_of(keys.fold(key, "model"), spec, "reward"), config)


def begin(model: LanguageModel, config: Config) -> State:
    """A judge that goes on from ``model`` and prefers nothing yet."""
    head = jnp.zeros(model.embedding.shape[1])
    return State(model, head, teaching.optimiser((model, head)), jnp.zeros((), jnp.int32), config)


def act(
    state: State, obs: Prompts, key: Key[Array, ""], explore: bool
) -> tuple[Answers, dict[str, Array]]:
    """What the judge's own model answers; learning to judge does not keep it fit to answer."""
    return generate(state.model, obs if explore else obs.greedy(), key), {}


def score(
    state: State, ids: Int[Array, "row time"], lengths: Int[Array, "row"]
) -> Float[Array, "row"]:
    """r of texts: the prompt and the answer with the token that ends it, ``lengths`` tokens, padded
    on the right with any token."""
    return _read(state.model, state.head, Lines.whole(ids), lengths)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update on pairs: of rows ``(row, token)`` the first half are the better ones."""
    config, pairs = state.config, Pairs.of(batch)

    def loss(weights: Any, lines: Lines, pairs: Pairs) -> tuple[Float[Array, ""], dict[str, Array]]:
        return _loss(weights, lines, pairs, config.centring)

    (model, head), optimiser, found = teaching.update(
        *((state.model, state.head), state.optimiser, loss, pairs.flat(), pairs),
        lr=risen(config.lr, state.updates, config.rise),
        max_norm=config.max_grad_norm,
        decay=config.weight_decay,
        piece=config.piece,
    )
    return State(model, head, optimiser, state.updates + 1, config), Signals(found)


def _loss(
    weights: tuple[LanguageModel, Array],
    lines: Lines,
    pairs: Pairs,
    centring: Float[Array, ""] | float,
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """L of these pairs' share, and how they were judged."""
    mask = pairs.flat()[1]
    places = jnp.arange(mask.shape[1], dtype=jnp.int32)[None]
    lengths = jnp.max(jnp.where(mask, places, -1), 1) + 2  # the token after a place is the answer's
    found = _read(*weights, lines, lengths).reshape(-1, 2)
    chosen, rejected = found[:, 0], found[:, 1]
    lost = jnp.sum(pairs.share * bradley_terry(chosen, rejected, 0.0, centring))
    told = {
        "reward/accuracy": (chosen > rejected).astype(jnp.float32),
        "reward/margin": chosen - rejected,
        "reward/middle": 0.5 * (chosen + rejected),
    }
    sums = {name: jnp.sum(pairs.share * value) for name, value in told.items()}
    return lost, {"loss/reward": lost} | jax.lax.stop_gradient(sums)


def _read(
    model: LanguageModel,
    head: Float[Array, "width"],
    lines: Lines,
    lengths: Int[Array, "row"],
) -> Float[Array, "row"]:
    found = lines.by_line(jnp.dot(lines.hidden(model).astype(jnp.float32), head))
    return jnp.take_along_axis(found, (lengths - 1)[:, None], 1)[:, 0]
