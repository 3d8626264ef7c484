"""Slots in which a model writes answers side by side, and the three programs that run them.

``read`` reads prompts, each once; ``admit`` puts a prompt into the slots of all its answers; and
``advance`` writes some tokens in every slot. A finished answer leaves its slot to the next one.

Everything has a fixed shape, and a row of a batch is computed like any other: an answer is the same
bit for bit in whatever slot, beside whatever others and in however many advances it is written.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from sterling import random_keys
from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.token_sampling import Sampling, draw_tokens, log_probs
from sterling.nets.key_value_cache import Cache

READ_TOKENS = 256  # tokens of prompts that are read at once
SHORTEST_CHUNK = 16  # tokens of one prompt that are read at once, at least
CHUNKS = 8  # in which the longest prompt is read, unless they would be shorter than that


@dataclasses.dataclass(frozen=True)
class SlotShapes:
    """What a set of slots has room for. Answers depend on it, by rounding alone."""

    slots: int  # answers written side by side
    context: int  # most tokens of a prompt and its answer
    limit: int  # most tokens of an answer
    stops: tuple[int, ...]  # tokens that end an answer
    has_cuts: bool = False  # whether answers may be sampled with top-k or top-p
    likeliest: int = 0  # tokens whose log-probabilities are kept beside those of each drawn one

    @property
    def chunk(self) -> int:
        """Return how many tokens of a prompt are read at once."""
        size = SHORTEST_CHUNK
        while size < min(READ_TOKENS, self.context // CHUNKS):
            size *= 2
        return size

    @property
    def prompts(self) -> int:
        """Return how many prompts are read at once."""
        return max(1, READ_TOKENS // self.chunk)

    @property
    def room(self) -> int:
        """Return the length of a prompt's array: whole chunks."""
        return -(-self.context // self.chunk) * self.chunk


class Prefixes(eqx.Module):
    """Prompts that a model has read."""

    cache: Cache
    scores: Float[Array, "prompt vocabulary"]  # logits of each one's next token
    lengths: Int[Array, "prompt"]


class Begin(eqx.Module):
    """Answers to begin: rows of arrays as many as there are slots."""

    prompt: Int[Array, "slot"]  # its row among the prefixes
    slot: Int[Array, "slot"]  # where it is written; past the last slot: none
    chance: UInt32[Array, "slot 2"]
    limit: Int[Array, "slot"]
    sampling: Sampling


class Likeliest(eqx.Module):
    """The likeliest tokens at every place of answers, and their log-probabilities; likely first."""

    ids: Int[Array, "slot limit some"]
    log_prob: Float[Array, "slot limit some"]  # -inf: cannot be drawn

    def note(self, state: Slots, here: tuple[Array, Array]) -> Likeliest:
        """Return these with the likeliest tokens of what is drawn now."""
        each = log_probs(state.scores, state.sampling)
        log_prob, ids = jax.lax.top_k(each, self.ids.shape[-1])
        return Likeliest(
            self.ids.at[here].set(ids, mode="drop"),
            self.log_prob.at[here].set(log_prob, mode="drop"),
        )


class Slots(eqx.Module):
    """Answers that are being written, and those that are finished and not yet taken away."""

    cache: Cache
    scores: Float[Array, "slot vocabulary"]  # logits of each answer's next token
    at: Int[Array, "slot"]  # position of its next token
    written: Int[Array, "slot"]  # tokens of the answer so far
    limit: Int[Array, "slot"]  # most of them
    busy: Bool[Array, "slot"]  # whether an answer is written
    stopped: Bool[Array, "slot"]  # whether a token ended it
    chance: UInt32[Array, "slot 2"]
    sampling: Sampling
    ids: Int[Array, "slot limit"]
    log_prob: Float[Array, "slot limit"]  # of the distribution each token was drawn from
    likeliest: Likeliest | None  # the likeliest tokens of these distributions; None: not kept


@jax.jit
def for_decoding(models: LanguageModel, seed: Int[Array, ""] | int) -> LanguageModel:
    """Return one seed's model, with its layers laid out for single tokens."""
    model = jax.tree.map(lambda x: x[seed], models)
    head = model.embedding.T if model.head is None else model.head
    return LanguageModel(model.embedding, model.stack.apart(), head)


@partial(jax.jit, static_argnames="shapes")  # so that no two arrays are one buffer
def empty_slots(model: LanguageModel, shapes: SlotShapes) -> Slots:
    """Return slots without answers."""
    count = shapes.slots
    zero, none = jnp.zeros(count, jnp.int32), jnp.zeros(count, bool)
    return Slots(
        model.stack.empty(count, shapes.room),
        jnp.zeros((count, model.vocabulary)),
        zero,
        zero,
        zero,
        none,
        none,
        jnp.zeros((count, 2), jnp.uint32),
        _cut_as(Sampling.for_rows(count), shapes),
        jnp.zeros((count, shapes.limit), jnp.int32),
        jnp.zeros((count, shapes.limit)),
        _no_likeliest(model, shapes) if shapes.likeliest else None,
    )


@partial(jax.jit, static_argnames="shapes")
def read(
    model: LanguageModel,
    ids: Int[Array, "prompt room"],
    lengths: Int[Array, "prompt"],
    shapes: SlotShapes,
) -> Prefixes:
    """Read prompts (right-padded; length 0: none), a chunk of each at a time."""
    rows, room = ids.shape
    number = jnp.arange(rows, dtype=jnp.int32)
    latest = jnp.zeros((rows, model.embedding.shape[1]), model.embedding.dtype)

    def add(chunk: Array, state: tuple[Cache, Array]) -> tuple[Cache, Array]:
        cache, latest = state
        begin = jnp.full(rows, chunk * shapes.chunk, jnp.int32)
        part = jax.lax.dynamic_slice_in_dim(ids, chunk * shapes.chunk, shapes.chunk, 1)
        hidden, cache = model.feed(part, cache, begin)
        last = lengths - 1 - begin
        here = (last >= 0) & (last < shapes.chunk)
        found = hidden[number, jnp.clip(last, 0, shapes.chunk - 1)]
        return cache, jnp.where(here[:, None], found, latest)

    chunks = -(-jnp.max(lengths) // shapes.chunk)
    blank = model.stack.empty(rows, room)
    cache, latest = jax.lax.fori_loop(0, chunks, add, (blank, latest))
    return Prefixes(cache, model.scores(latest), lengths)


@partial(jax.jit, donate_argnums=0)
def admit(state: Slots, prefixes: Prefixes, begin: Begin) -> Slots:
    """Begin answers in free slots."""
    slot = begin.slot

    def put(old: Array, new: Array) -> Array:
        return old.at[slot].set(new, mode="drop")

    return Slots(
        state.cache.with_rows(prefixes.cache, begin.prompt, slot),
        put(state.scores, prefixes.scores[begin.prompt]),
        put(state.at, prefixes.lengths[begin.prompt]),
        state.written.at[slot].set(0, mode="drop"),
        put(state.limit, begin.limit),
        state.busy.at[slot].set(True, mode="drop"),
        state.stopped.at[slot].set(False, mode="drop"),
        put(state.chance, begin.chance),
        jax.tree.map(put, state.sampling, begin.sampling),
        state.ids,
        state.log_prob,
        state.likeliest,
    )


@partial(jax.jit, static_argnames="shapes", donate_argnums=1)
def advance(
    model: LanguageModel,
    state: Slots,
    quantum: Int[Array, ""] | int,
    free: Int[Array, ""] | int,
    shapes: SlotShapes,
) -> Slots:
    """Write up to ``quantum`` tokens in every busy slot; stop when ``free`` slots are free."""

    def goes_on(carry: tuple[Array, Slots]) -> Array:
        idle = jnp.sum(~carry[1].busy)
        return (carry[0] < quantum) & (idle < free)

    def one(carry: tuple[Array, Slots]) -> tuple[Array, Slots]:
        return carry[0] + 1, _decode_step(model, carry[1], shapes)

    return jax.lax.while_loop(goes_on, one, (jnp.zeros((), jnp.int32), state))[1]


def _decode_step(model: LanguageModel, state: Slots, shapes: SlotShapes) -> Slots:
    """Draw a token for every answer, and feed it to the model."""
    token, log_prob = draw_tokens(state.scores, _uniform(state), state.sampling)
    place = jnp.where(state.busy, state.written, shapes.limit)  # past the last one: dropped
    here = (jnp.arange(shapes.slots, dtype=jnp.int32), place)
    stop = jnp.isin(token, jnp.asarray(shapes.stops, jnp.int32)) & state.busy
    written = state.written + state.busy.astype(jnp.int32)
    at = jnp.where(state.busy, state.at, 0)  # an idle slot is read no further than its first place
    hidden, cache = model.feed(token[:, None], state.cache, at)
    return Slots(
        cache,
        model.scores(hidden[:, -1]),
        at + 1,
        written,
        state.limit,
        state.busy & ~stop & (written < state.limit),
        state.stopped | stop,
        state.chance,
        state.sampling,
        state.ids.at[here].set(token, mode="drop"),
        state.log_prob.at[here].set(log_prob, mode="drop"),
        None if state.likeliest is None else state.likeliest.note(state, here),
    )


def _no_likeliest(model: LanguageModel, shapes: SlotShapes) -> Likeliest:
    size = (shapes.slots, shapes.limit, min(shapes.likeliest, model.vocabulary))
    return Likeliest(jnp.zeros(size, jnp.int32), jnp.zeros(size))


def _uniform(state: Slots) -> Float[Array, "slot"]:
    """Return the random number in [0, 1) of each answer's next token."""

    def one(chance: Array, place: Array) -> Array:
        key = jax.random.wrap_key_data(chance)
        return jax.random.uniform(random_keys.fold(key, "token", place))

    return jax.vmap(one)(state.chance, state.written)


def _cut_as(sampling: Sampling, shapes: SlotShapes) -> Sampling:
    return dataclasses.replace(sampling, has_cuts=shapes.has_cuts)
