"""Causal transformers: a stack of attention and perceptron layers over a sequence of vectors.

Pre-norm as in GPT-2 (Radford 2019): x <- x + attention(norm(x)), x <- x + perceptron(norm(x)), and
a last norm. Tokens are embedded, and outputs read, by the caller. All layers are one tree whose
leaves have a leading layer axis, run by ``jax.lax.scan`` four at a time: programs compile in the
time of four layers, however many there are, and small stacks run without a loop, which on CPUs
takes a third less time.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import keys
from sterling.nets.mlp import LayerNorm, Linear, pieces
from sterling.types import Mistake

NEVER = -1e30  # the score of what may not be looked at: finite, so that gradients stay finite
UNROLL = 4  # layers compiled side by side
BASE = 10_000.0  # rotary positions: the longest wave, in tokens, is 2 pi times it


class Block(eqx.Module):
    """One layer's parameters."""

    before: LayerNorm
    queries: Linear  # and keys, and values
    out: Linear
    between: LayerNorm
    up: Linear
    down: Linear

    @classmethod
    def create(cls, key: Key[Array, ""], width: int, hidden: int, layers: int) -> Block:
        """Normal weights of deviation inputs^-1/2; those that write to the stream are divided by
        sqrt(2 layers), so that a deep stack's output is no larger than a shallow one's."""
        shapes = [(width, 3 * width), (width, width), (width, hidden), (hidden, width)]
        total = sum(math.prod(shape) for shape in shapes)
        raw = pieces(jax.random.normal(key, (total,)), shapes)
        shrink = (1.0, (2 * layers) ** -0.5) * 2
        made = [
            Linear(x * (factor * x.shape[0] ** -0.5), jnp.zeros(x.shape[1]))
            for x, factor in zip(raw, shrink, strict=True)
        ]
        norms = [LayerNorm(jnp.ones(width), jnp.zeros(width)) for _ in range(2)]
        return cls(norms[0], made[0], made[1], norms[1], made[2], made[3])


class Cache(eqx.Module):
    """What earlier tokens left behind for later ones, of ``room`` tokens at most."""

    keys: Float[Array, "layer batch head room size"]
    values: Float[Array, "layer batch head room size"]
    filled: Bool[Array, "batch room"]  # False: padding, or not reached yet


class Transformer(eqx.Module):
    """A causal stack: token t sees the tokens up to t. See :meth:`create`."""

    blocks: Block  # every leaf is (layer, ...)
    norm: LayerNorm
    places: Float[Array, "room width"] | None
    heads: int = eqx.field(static=True)
    rotary: bool = eqx.field(static=True)

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
        """A new stack for tokens of ``width`` numbers.

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
        make = jax.vmap(lambda key: Block.create(key, width, units, layers))
        blocks = make(keys.deal(key, "layer", layers))
        places = None
        if positions == "learned":
            places = 0.02 * jax.random.normal(keys.fold(key, "places"), (room or 0, width))
        norm = LayerNorm(jnp.ones(width), jnp.zeros(width))
        return cls(blocks, norm, places, heads, positions == "rotary")

    def __call__(
        self, x: Float[Array, "batch time width"], mask: Bool[Array, "batch time"] | None = None
    ) -> Float[Array, "batch time width"]:
        """All tokens at once. Those where ``mask`` is False are seen by no other (None: all
        are); a token always sees itself, so that padding stays finite."""
        at = jnp.arange(x.shape[1], dtype=jnp.int32)
        looks = at[:, None] >= at[None]
        if mask is None:
            allowed = looks[None]
        else:
            allowed = (looks[None] & mask[:, None]) | (at[:, None] == at[None])[None]

        def layer(x: Array, block: Block) -> tuple[Array, None]:
            queries, keys, values = self._split(block, x, at)
            return self._finish(block, x, attend(queries, keys, values, allowed)), None

        x, _ = jax.lax.scan(layer, self._placed(x, at), self.blocks, unroll=UNROLL)
        return self.norm(x)

    def empty(self, batch: int, room: int) -> Cache:
        """A cache for sequences of at most ``room`` tokens."""
        layers, width = self.blocks.before.scale.shape
        shape = (layers, batch, self.heads, room, width // self.heads)
        return Cache(jnp.zeros(shape), jnp.zeros(shape), jnp.zeros((batch, room), bool))

    def step(
        self,
        x: Float[Array, "batch new width"],
        cache: Cache,
        position: Int[Array, ""] | int,
        mask: Bool[Array, "batch new"] | None = None,
    ) -> tuple[Float[Array, "batch new width"], Cache]:
        """The next tokens, one or several, the first of which is number ``position``; they see
        those in ``cache`` and are in the cache that is returned.

        In however many steps a sequence is given, the outputs are those of :meth:`__call__`.
        """
        batch, new, _ = x.shape
        at = position + jnp.arange(new, dtype=jnp.int32)
        slots = jnp.arange(cache.filled.shape[1], dtype=jnp.int32)
        fresh = jnp.ones((batch, new), bool) if mask is None else mask
        filled = jax.lax.dynamic_update_slice(cache.filled, fresh, (0, position))
        looks = at[:, None] >= slots[None]
        allowed = (looks[None] & filled[:, None]) | (at[:, None] == slots[None])[None]

        def layer(x: Array, each: tuple[Block, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            block, keys, values = each
            queries, new_keys, new_values = self._split(block, x, at)
            keys = jax.lax.dynamic_update_slice(keys, new_keys, (0, 0, position, 0))
            values = jax.lax.dynamic_update_slice(values, new_values, (0, 0, position, 0))
            return self._finish(block, x, attend(queries, keys, values, allowed)), (keys, values)

        layers = (self.blocks, cache.keys, cache.values)
        x, (keys, values) = jax.lax.scan(layer, self._placed(x, at), layers, unroll=UNROLL)
        return self.norm(x), Cache(keys, values, filled)

    def _placed(self, x: Float[Array, "batch time width"], at: Int[Array, "time"]) -> Array:
        return x if self.places is None else x + self.places[at][None]

    def _split(
        self, block: Block, x: Float[Array, "batch time width"], at: Int[Array, "time"]
    ) -> tuple[Float[Array, "batch head time size"], ...]:
        """Queries, keys and values of a layer, by heads."""
        batch, time, width = x.shape
        mixed = block.queries(block.before(x))
        mixed = mixed.reshape(batch, time, 3, self.heads, width // self.heads)
        queries, keys, values = jnp.moveaxis(mixed, (2, 3), (0, 2))
        if self.rotary:
            queries, keys = rotated(queries, at), rotated(keys, at)
        return queries, keys, values

    def _finish(
        self,
        block: Block,
        x: Float[Array, "batch time width"],
        found: Float[Array, "batch head time size"],
    ) -> Float[Array, "batch time width"]:
        """Add what attention found to the stream, then the perceptron's answer to both."""
        x = x + block.out(jnp.moveaxis(found, 1, 2).reshape(x.shape))
        return x + block.down(jax.nn.gelu(block.up(block.between(x))))


def attend(
    queries: Float[Array, "batch head time size"],
    keys: Float[Array, "batch head room size"],
    values: Float[Array, "batch head room size"],
    allowed: Bool[Array, "#batch time room"],
) -> Float[Array, "batch head time size"]:
    """softmax(q k / sqrt(size)) v over the keys that are allowed (Vaswani 2017, eq. 1)."""
    scores = jnp.einsum("bhts,bhrs->bhtr", queries, keys) * queries.shape[-1] ** -0.5
    weights = jax.nn.softmax(jnp.where(allowed[:, None], scores, NEVER))
    return jnp.einsum("bhtr,bhrs->bhts", weights, values)


def rotated(
    x: Float[Array, "batch head time size"], at: Int[Array, "time"]
) -> Float[Array, "batch head time size"]:
    """Each pair (x_i, x_{i + size/2}) turned by the angle at BASE^(-2 i / size): the product of
    two turned vectors depends on the distance of their places only (Su 2021, eq. 15)."""
    half = x.shape[-1] // 2
    rate = BASE ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = at.astype(jnp.float32)[:, None] * rate[None]
    cos, sin = (f(angle)[None, None] for f in (jnp.cos, jnp.sin))
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], -1)
