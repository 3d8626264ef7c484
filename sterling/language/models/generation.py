"""Generate answers in one compiled program: read the prompts, then write the answers token by
token.

A fixed number of *slots* is written side by side. A finished row leaves its slot, and as soon as
enough slots are free, the next prompts of the queue are read into them, inside the same program:
one long answer does not keep the others waiting. The cache is a ring that all rows write at the
same place, so that a step is one slice for all of them, wherever in their answers they are.

The randomness of a token is a function of its prompt's number and its position in the answer. Which
slot an answer was written in, and beside which others, changes nothing but rounding.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import random_keys
from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.token_sampling import Sampling, draw_tokens
from sterling.nets.key_value_cache import Cache

REFILL_DIVISOR = 4  # prompts are read once 1 / 4 of the slots is free


class Prompts(eqx.Module):
    """The prompts to answer, and how to sample the answers."""

    ids: Int[Array, "*seed prompt room"]  # right-padded
    lengths: Int[Array, "*seed prompt"]  # 1 to room
    total: Int[Array, "*seed"]  # number of prompts; the rows after them are padding
    number: Int[Array, "*seed prompt"]  # from which its answer's randomness is derived
    sampling: Sampling
    limit: int = eqx.field(static=True)  # most tokens of an answer
    slots: int = eqx.field(static=True)  # rows written at a time
    stops: tuple[int, ...] = eqx.field(static=True)  # tokens that end an answer

    @classmethod
    def padded(
        cls,
        tokens: Sequence[Sequence[Sequence[int]]],
        pad: int,
        sampling: tuple[float, int, float],
        *,
        limit: int,
        slots: int,
        stops: tuple[int, ...],
    ) -> Prompts:
        """Return prompts by [seed][prompt], padded to few shapes: few programs are compiled.
        ``sampling``: temperature, top-k and top-p of all answers."""
        rows = round_up_length(max(map(len, tokens)))
        room = round_up_length(max(len(each) for each in itertools.chain(*tokens)))
        seeds = len(tokens)
        ids = np.full((seeds, rows, room), pad, np.int32)
        lengths = np.ones((seeds, rows), np.int32)
        for seed, prompts in enumerate(tokens):
            for row, prompt in enumerate(prompts):
                ids[seed, row, : len(prompt)] = prompt
                lengths[seed, row] = len(prompt)
        total = np.array([*map(len, tokens)], np.int32)
        one = Sampling.for_rows(rows, *sampling)
        every = jax.tree.map(lambda x: np.broadcast_to(np.asarray(x), (seeds, *x.shape)), one)
        number = np.broadcast_to(np.arange(rows, dtype=np.int32), (seeds, rows))
        ids, lengths, total, number, every = jax.device_put((ids, lengths, total, number, every))
        return cls(ids, lengths, total, number, every, limit, min(slots, rows), stops)

    def greedy(self) -> Prompts:
        """Return the same prompts, to be answered with the likeliest tokens."""
        cold = jnp.zeros_like(self.sampling.temperature)
        sampling = Sampling(cold, self.sampling.top_k, self.sampling.top_p, False)
        parts = (self.ids, self.lengths, self.total, self.number, sampling)
        return Prompts(*parts, self.limit, self.slots, self.stops)


class Answers(eqx.Module):
    """The sampled answers, one for each prompt."""

    ids: Int[Array, "*seed prompt limit"]  # 0 after the end
    log_prob: Float[Array, "*seed prompt limit"]  # of the distribution each token was drawn from
    length: Int[Array, "*seed prompt"]  # number of tokens, with the one that stops
    stopped: Bool[Array, "*seed prompt"]  # False: cut off at the limit

    def row(self, seed: int, row: int) -> tuple[list[int], list[float], bool]:
        """Return the tokens of one seed's answer, their log-probabilities, and whether it ended."""
        count = int(self.length[seed, row])
        ids, log_prob = self.ids[seed, row, :count], self.log_prob[seed, row, :count]
        return ids.tolist(), log_prob.tolist(), bool(self.stopped[seed, row])


class Slots(eqx.Module):
    """The rows that are being written, and all answers so far."""

    cache: Cache
    scores: Float[Array, "slot vocabulary"]  # logits of each row's next token
    prompt: Int[Array, "slot"]  # index of the prompt it answers; the number of prompts: none
    at: Int[Array, "slot"]  # position of the next token
    written: Int[Array, "slot"]  # tokens of the answer so far
    place: Int[Array, ""]  # where in the ring the next tokens go
    taken: Int[Array, ""]  # prompts read so far
    answers: Answers


def round_up_length(length: int) -> int:
    """Round ``length`` up to a number of two significant bits (8, 12, 16, 24, 32, ...). Few
    different shapes are compiled then, for at most a third more padding."""
    size = 8
    while size < length:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size


@jax.jit
def generate(model: LanguageModel, prompts: Prompts, key: Key[Array, ""]) -> Answers:
    """Return a sampled answer to every prompt.

    The model is used in its own dtype: weights in bfloat16 make a cache in bfloat16.
    """
    ready, chances = _for_decoding(model), _token_chances(prompts, key)
    rows = prompts.lengths.size
    width = min(prompts.slots, rows)
    few = max(1, width // REFILL_DIVISOR)

    def waits(state: Slots) -> Array:
        free = jnp.sum(state.prompt == rows)
        return (state.taken < prompts.total) & ((free >= few) | (free == width))

    def writes(state: Slots) -> Array:
        return ~waits(state) & jnp.any(state.prompt < rows)

    def write(state: Slots) -> Slots:
        return jax.lax.while_loop(
            writes, lambda state: _decode_step(ready, state, prompts, chances), state
        )

    return jax.lax.while_loop(
        lambda state: state.taken < prompts.total,
        lambda state: write(_refill_slots(ready, state, prompts, few)),
        write(_fill_slots(ready, prompts, width)),
    ).answers


def _for_decoding(model: LanguageModel) -> LanguageModel:
    """Return the model with its layers laid out for single tokens."""
    head = model.embedding.T if model.head is None else model.head
    return LanguageModel(model.embedding, model.stack.apart(), head)


def _token_chances(prompts: Prompts, key: Key[Array, ""]) -> Float[Array, "*seed prompt limit"]:
    """Return the uniform random number that each token of each answer is drawn with."""

    def one(prompt: Array, place: Array) -> Array:
        return jax.random.uniform(
            random_keys.fold(random_keys.fold(key, "answer", prompt), "token", place)
        )

    places = jnp.arange(prompts.limit, dtype=jnp.int32)
    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(prompts.number, places)


def _fill_slots(model: LanguageModel, prompts: Prompts, slots: int) -> Slots:
    """Return all slots, with the first prompts read into them."""
    (rows, room), limit = prompts.ids.shape, prompts.limit
    nothing = Answers(
        jnp.zeros((rows, limit), jnp.int32),
        jnp.zeros((rows, limit)),
        jnp.zeros(rows, jnp.int32),
        jnp.zeros(rows, bool),
    )
    number = jnp.arange(slots, dtype=jnp.int32)
    number = jnp.where(number < prompts.total, number, rows)
    scores, fresh, own = _prefill(model, prompts, number)
    taken = jnp.sum(number < rows).astype(jnp.int32)
    place, written = jnp.asarray(room, jnp.int32), jnp.zeros(slots, jnp.int32)
    return Slots(fresh.enlarge(room + limit), scores, number, own, written, place, taken, nothing)


def _refill_slots(model: LanguageModel, state: Slots, prompts: Prompts, count: int) -> Slots:
    """Read up to ``count`` prompts into free slots."""
    rows, slots = prompts.lengths.size, state.prompt.size
    free = state.prompt == rows
    slot = jnp.argsort(~free)[:count].astype(jnp.int32)  # free ones first
    number = state.taken + jnp.arange(count, dtype=jnp.int32)
    use = free[slot] & (number < prompts.total)
    slot, number = jnp.where(use, slot, slots), jnp.where(use, number, rows)
    scores, fresh, own = _prefill(model, prompts, number)
    return Slots(
        state.cache.with_rows(fresh, slot, state.place),
        state.scores.at[slot].set(scores, mode="drop"),
        state.prompt.at[slot].set(number, mode="drop"),
        state.at.at[slot].set(own, mode="drop"),
        state.written.at[slot].set(0, mode="drop"),
        state.place,
        state.taken + jnp.sum(use).astype(jnp.int32),
        state.answers,
    )


def _prefill(
    model: LanguageModel, prompts: Prompts, number: Int[Array, "count"]
) -> tuple[Float[Array, "count vocabulary"], Cache, Int[Array, "count"]]:
    """Return the logits after the prompts of these numbers, their key-value cache, and their
    lengths."""
    room = prompts.ids.shape[1]
    own = prompts.lengths.at[number].get(mode="fill", fill_value=1)
    at = jnp.arange(room, dtype=jnp.int32)[None] - room + own[:, None]  # right-aligned
    ids = prompts.ids.at[number[:, None], jnp.maximum(at, 0)].get(mode="fill", fill_value=0)
    blank = model.stack.empty(number.size, room)
    return *model.next_tokens(ids, blank, 0, at >= 0, jnp.maximum(at, 0)), own


def _decode_step(
    model: LanguageModel,
    state: Slots,
    prompts: Prompts,
    chances: Float[Array, "*seed prompt limit"],
) -> Slots:
    """Draw a token for every row, and feed it to the model."""
    rows, limit = state.answers.ids.shape
    busy = state.prompt < rows
    which = jnp.minimum(state.prompt, rows - 1)
    chance = chances[which, jnp.minimum(state.written, limit - 1)]
    token, log_prob = draw_tokens(state.scores, chance, prompts.sampling.select_rows(which))
    here = (state.prompt, state.written)
    stop = jnp.isin(token, jnp.asarray(prompts.stops, jnp.int32)) & busy
    written = state.written + 1
    over = stop | (written >= limit)
    answers = Answers(
        state.answers.ids.at[here].set(token, mode="drop"),
        state.answers.log_prob.at[here].set(log_prob, mode="drop"),
        state.answers.length.at[state.prompt].set(written, mode="drop"),
        state.answers.stopped.at[state.prompt].set(stop, mode="drop"),
    )
    scores, cache = model.next_tokens(
        token[:, None], state.cache, state.place, busy[:, None], state.at[:, None]
    )
    return Slots(
        cache,
        scores,
        jnp.where(over, rows, state.prompt),
        state.at + 1,
        written,
        (state.place + 1) % cache.position.shape[1],
        state.taken,
        answers,
    )
