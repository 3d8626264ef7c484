"""Causal transformers: a stack of attention and perceptron layers over a sequence of vectors.

Pre-norm: x <- x + attention(norm(x)), x <- x + perceptron(norm(x)), and a last norm. A
:class:`Form` says which of the published kinds it is: GPT-2's (Radford 2019: layer norm, GELU,
biases) or that of Llama and Qwen (RMS norm, SwiGLU, rotary positions, fewer key heads than query
heads). Tokens are embedded, and outputs read, by the caller.

All layers are one tree whose leaves have a leading layer axis. Whole sequences run through
``jax.lax.scan``, four layers at a time: programs compile in the time of four layers, however many
there are, and small stacks run without a loop, which on CPUs takes a third less time. Single steps
with a cache run layer after layer.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import keys
from sterling.nets.cache import NEVER, NOWHERE, Cache, recall, remembered
from sterling.nets.mlp import Linear, Norm, pieces
from sterling.types import Mistake

UNROLL = 4  # layers compiled side by side
BASE = 10_000.0  # rotary positions: the longest wave, in tokens, is 2 pi times it
Turns = tuple[Float[Array, "#batch 1 time half"], Float[Array, "#batch 1 time half"]]


@dataclasses.dataclass(frozen=True)
class Form:
    """Which kind of transformer. The defaults are GPT-2's."""

    heads: int
    key_heads: int  # each serves heads / key_heads heads (grouped-query attention)
    size: int  # of a head
    hidden: int  # units of a perceptron
    norm: str = "layer"  # or "rms": no mean is taken off and nothing is added (Zhang 2019)
    epsilon: float = 1e-6  # added to a variance
    gated: bool = False  # SwiGLU: silu(x G) * (x U) for gelu(x U) (Shazeer 2020)
    biases: tuple[bool, bool, bool] = (True, True, True)  # of queries, of out, of the perceptron
    normed_heads: bool = False  # queries and keys are RMS-normalised, as in Qwen3
    rates: tuple[float, ...] = ()  # rotary angle per token of each pair of numbers; (): none
    remember: bool = True  # keep a layer's inner values for the gradient; else compute them twice

    def blank(self, width: int) -> Norm:
        """A norm of this form that scales by 1."""
        shift = jnp.zeros(width) if self.norm == "layer" else None
        return Norm(jnp.ones(width), shift, self.epsilon)


class Block(eqx.Module):
    """One layer's parameters."""

    before: Norm
    queries: Linear  # and keys, and values, side by side
    out: Linear
    between: Norm
    up: Linear  # where gated, the gate and then what it lets through
    down: Linear
    of_queries: Norm | None
    of_keys: Norm | None

    @classmethod
    def create(cls, key: Key[Array, ""], width: int, form: Form, layers: int) -> Block:
        """Normal weights of deviation inputs^-1/2; those that write to the stream are divided by
        sqrt(2 layers), so that a deep stack's output is no larger than a shallow one's."""
        heads = form.heads * form.size
        mixed = heads + 2 * form.key_heads * form.size
        rises = form.hidden * (2 if form.gated else 1)
        shapes = [(width, mixed), (heads, width), (width, rises), (form.hidden, width)]
        total = sum(math.prod(shape) for shape in shapes)
        raw = pieces(jax.random.normal(key, (total,)), shapes)
        shrink = (1.0, (2 * layers) ** -0.5) * 2
        asked = (*form.biases, form.biases[-1])
        made = [
            Linear(x * (factor * x.shape[0] ** -0.5), jnp.zeros(x.shape[1]) if bias else None)
            for x, factor, bias in zip(raw, shrink, asked, strict=True)
        ]
        norms = [form.blank(width) for _ in range(2)]
        unit = Norm(jnp.ones(form.size), None, form.epsilon) if form.normed_heads else None
        return cls(norms[0], made[0], made[1], norms[1], made[2], made[3], unit, unit)


class Transformer(eqx.Module):
    """A causal stack: token t sees the tokens up to t. See :meth:`create`."""

    blocks: Block | tuple[Block, ...]  # every leaf is (layer, ...); or they are apart
    norm: Norm
    places: Float[Array, "room width"] | None
    form: Form = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        key: Key[Array, ""],
        width: int,
        *,
        layers: int,
        heads: int,
        hidden: int | None = None,
        positions: str = "none",
        room: int | None = None,
    ) -> Transformer:
        """A new stack of GPT-2's kind for tokens of ``width`` numbers.

        ``hidden`` units in each perceptron (default: 4 ``width``). ``positions``: "none" (the
        caller's tokens tell their places), "rotary" (Su 2021, arXiv:2104.09864: only distances
        matter, any length) or "learned" (one vector for each of ``room`` places, added at the
        start). Raises :class:`Mistake` for a width that the heads cannot share, and for positions
        that are not known or lack their ``room``.
        """
        size = width // heads
        if size * heads != width or (positions == "rotary" and size % 2):
            raise Mistake(f"width {width} does not split into {heads} heads of an even size")
        if positions not in ("none", "rotary", "learned"):
            raise Mistake(f"positions {positions!r} are not known; use none, rotary or learned")
        if positions == "learned" and room is None:
            raise Mistake("learned positions are counted; say how many, room=...")
        units = 4 * width if hidden is None else hidden
        rates = rotary_rates(size) if positions == "rotary" else ()
        made = cls.of(key, width, Form(heads, heads, size, units, rates=rates), layers)
        if positions != "learned":
            return made
        places = 0.02 * jax.random.normal(keys.fold(key, "places"), (room or 0, width))
        return cls(made.blocks, made.norm, places, made.form)

    @classmethod
    def of(cls, key: Key[Array, ""], width: int, form: Form, layers: int) -> Transformer:
        """A new stack of any form."""
        make = jax.vmap(lambda key: Block.create(key, width, form, layers))
        return cls(make(keys.deal(key, "layer", layers)), form.blank(width), None, form)

    def __call__(
        self,
        x: Float[Array, "batch time width"],
        mask: Bool[Array, "batch time"] | None = None,
        *,
        at: Int[Array, "#batch time"] | None = None,
        allowed: Bool[Array, "#batch time time"] | None = None,
    ) -> Float[Array, "batch time width"]:
        """All tokens at once. Those where ``mask`` is False are seen by no other (None: all
        are); a token always sees itself, so that padding stays finite. Where several sequences
        share a row, ``at`` says the tokens' positions, and ``allowed`` what each sees instead."""
        places = jnp.arange(x.shape[1], dtype=jnp.int32)[None]
        at = places if at is None else at
        if allowed is None:
            looks = places[:, :, None] >= places[:, None]
            itself = places[:, :, None] == places[:, None]
            allowed = looks if mask is None else (looks & mask[:, None]) | itself
        turn = turns(at, self.form.rates)

        def layer(x: Array, block: Block) -> tuple[Array, None]:
            queries, keys, values = self._split(block, x, turn)
            return self._finish(block, x, attend(queries, keys, values, allowed)), None

        step: Any = layer if self.form.remember else jax.checkpoint(layer)
        x, _ = jax.lax.scan(step, self._placed(x, at), self.blocks, unroll=UNROLL)
        return self.norm(x)

    @property
    def layers(self) -> tuple[Block, ...]:
        """The layers one by one."""
        blocks = self.blocks
        if isinstance(blocks, tuple):
            return blocks
        count = blocks.before.scale.shape[0]
        return tuple(jax.tree.map(lambda leaf, i=i: leaf[i], blocks) for i in range(count))

    def apart(self) -> Transformer:
        """The same with its layers in memory of their own, for many calls of :meth:`step`."""
        return Transformer(self.layers, self.norm, self.places, self.form)

    def empty(self, batch: int, room: int) -> Cache:
        """A cache for sequences of at most ``room`` tokens."""
        form, kind = self.form, self.norm.scale.dtype
        shape = {"heads": form.key_heads, "size": form.size}
        return Cache.empty(len(self.layers), batch, room, **shape, dtype=kind)

    def step(
        self,
        x: Float[Array, "batch new width"],
        cache: Cache,
        place: Int[Array, ""] | int,
        mask: Bool[Array, "batch new"] | None = None,
        at: Int[Array, "batch new"] | None = None,
    ) -> tuple[Float[Array, "batch new width"], Cache]:
        """The next tokens, one or several, put into the cache from ``place`` on; they see those in
        ``cache`` and are in the cache that is returned.

        Their positions ``at`` are their places unless said otherwise: rows of one batch may stand
        at different positions, and places may be used again in turn when their tokens are of no
        more use. In however many steps a sequence is given, the outputs are those of
        :meth:`__call__`.
        """
        batch, new, _ = x.shape
        places = place + jnp.arange(new, dtype=jnp.int32)
        at = jnp.broadcast_to(places[None], (batch, new)) if at is None else at
        fresh = at if mask is None else jnp.where(mask, at, NOWHERE)
        position = jax.lax.dynamic_update_slice(cache.position, fresh, (0, place))
        seen = position[:, None]
        itself = places[:, None] == jnp.arange(position.shape[1], dtype=jnp.int32)[None]
        allowed = ((seen >= 0) & (seen <= at[..., None])) | itself[None]
        x, kept, turn = self._placed(x, at), [], turns(at, self.form.rates)
        for block, *old in zip(self.layers, cache.keys, cache.values, strict=True):
            queries, keys, values = self._split(block, x, turn)
            layer = remembered((old[0], old[1]), keys, values, place)
            x = self._finish(block, x, recall(queries, layer, allowed))
            kept.append(layer)
        first, second = zip(*kept, strict=True)
        return self.norm(x), Cache(first, second, position)

    def _placed(
        self, x: Float[Array, "batch time width"], at: Int[Array, "#batch time"]
    ) -> Float[Array, "batch time width"]:
        return x if self.places is None else x + self.places[at]

    def _split(
        self, block: Block, x: Float[Array, "batch time width"], turn: Turns
    ) -> tuple[Float[Array, "batch _ time size"], ...]:
        """Queries, keys and values of a layer, by heads."""
        form, (batch, time, _) = self.form, x.shape
        mixed = block.queries(block.before(x)).reshape(batch, time, -1, form.size)
        ends = [form.heads, form.heads + form.key_heads]
        queries, keys, values = jnp.split(jnp.moveaxis(mixed, 2, 1), ends, axis=1)
        if block.of_queries is not None and block.of_keys is not None:
            queries, keys = block.of_queries(queries), block.of_keys(keys)
        if form.rates:
            queries, keys = (rotated(part, turn) for part in (queries, keys))
        return queries, keys, values

    def _finish(
        self,
        block: Block,
        x: Float[Array, "batch time width"],
        found: Float[Array, "batch head time size"],
    ) -> Float[Array, "batch time width"]:
        """Add what attention found to the stream, then the perceptron's answer to both."""
        x = x + block.out(jnp.moveaxis(found, 1, 2).reshape(*x.shape[:2], -1))
        risen = block.up(block.between(x))
        if not self.form.gated:
            return x + block.down(jax.nn.gelu(risen))
        gate, passed = jnp.split(risen, 2, -1)
        return x + block.down(jax.nn.silu(gate) * passed)


def attend(
    queries: Float[Array, "batch head time size"],
    keys: Float[Array, "batch few room size"],
    values: Float[Array, "batch few room size"],
    allowed: Bool[Array, "#batch time room"],
) -> Float[Array, "batch head time size"]:
    """softmax(q k / sqrt(size)) v over the keys that are allowed (Vaswani 2017, eq. 1), in float32.

    With fewer key heads than heads, each serves several in a row (Ainslie 2023).
    """
    batch, few, _, size = keys.shape
    shape = queries.shape
    queries = queries.reshape(batch, few, -1, size)  # (head in a group, time) is one axis
    scores = jnp.einsum("bkqs,bkrs->bkqr", queries, keys).astype(jnp.float32) * size**-0.5
    grouped = scores.reshape(batch, few, -1, *allowed.shape[1:])
    grouped = jnp.where(allowed[:, None, None], grouped, NEVER)
    most = jax.lax.stop_gradient(jnp.max(grouped, -1, keepdims=True))
    weights = jnp.exp(grouped - most).reshape(scores.shape)
    found = jnp.einsum("bkqr,bkrs->bkqs", weights.astype(values.dtype), values)
    share = (1.0 / jnp.sum(weights, -1, keepdims=True)).astype(found.dtype)
    return (found * share).reshape(shape)


def rotary_rates(size: int, base: float = BASE) -> tuple[float, ...]:
    """base^(-2 i / size) for each pair i (Su 2021, section 3.4.2)."""
    return tuple(base ** (-2.0 * i / size) for i in range(size // 2))


def turns(at: Int[Array, "#batch time"], rates: tuple[float, ...]) -> Turns:
    """Cosine and sine of the angles at which tokens at these positions are turned."""
    angle = at.astype(jnp.float32)[..., None] * jnp.asarray(rates, jnp.float32)[None, None]
    return jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]


def rotated(x: Float[Array, "batch head time size"], turn: Turns) -> Array:
    """Each pair (x_i, x_{i + size/2}) turned by the angle at rate_i: the product of two turned
    vectors depends on the distance of their places only (Su 2021, eq. 15)."""
    cos, sin = (part.astype(x.dtype) for part in turn)
    first, second = jnp.split(x, 2, -1)
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], -1)
