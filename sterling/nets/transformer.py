"""Causal transformers: a stack of attention and MLP layers over a sequence of vectors.

Pre-norm: x <- x + attention(norm(x)), x <- x + perceptron(norm(x)), and a last norm; with
``late_norms`` x <- x + norm(attention(x)), x <- x + norm(perceptron(x)).
:class:`TransformerForm` says which published kind it is: GPT-2's (Radford 2019: layer norm, GELU,
biases) or Llama's and Qwen's (RMS norm, SwiGLU, rotary positions, fewer key heads than query
heads). The caller embeds tokens and reads outputs.

All layers are one tree whose leaves have a leading layer axis. Whole sequences run through
``jax.lax.scan``, four layers per iteration: compiling takes the time of four layers, whatever their
number. Up to four layers, and single steps with a cache, run without a loop: a third faster.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import random_keys
from sterling.nets.attention.dense_attention import attend
from sterling.nets.attention.rotary import (
    Rotation,
    apply_rotation,
    kept_rotation,
    rotary_rates,
    rotations,
)
from sterling.nets.attention.segment_attention import attend_segments
from sterling.nets.attention.segments import Segments
from sterling.nets.key_value_cache import Cache, attend_to_cache, write_tokens
from sterling.nets.mlp import Linear, Norm, split_flat
from sterling.types import Mistake

UNROLLED_LAYERS = 4  # layers per iteration of the loop over layers


@dataclasses.dataclass(frozen=True)
class TransformerForm:
    """The architecture of a transformer's layers. The defaults are GPT-2's."""

    heads: int
    key_heads: int  # each serves heads / key_heads heads (grouped-query attention)
    size: int  # numbers per head
    hidden: int  # units of each MLP
    norm: str = "layer"  # or "rms": no mean is subtracted, no shift added (Zhang 2019)
    epsilon: float = 1e-6  # added to a variance
    gated: bool = False  # SwiGLU: silu(x G) * (x U) in place of gelu(x U) (Shazeer 2020)
    biases: tuple[bool, bool, bool] = (True, True, True)  # of queries, output and MLP
    normed_heads: bool = False  # queries and keys are RMS-normalised, as in Qwen3
    normed_wholes: bool = False  # the same over all heads of a token together, as in OLMo 2
    late_norms: bool = False  # norms follow attention and MLP, as in OLMo 2
    rates: tuple[float, ...] = ()  # rotary angle per token of each pair of numbers; (): none.
    # Fewer than size / 2: the numbers after these pairs are not turned, as in Phi-3
    unrotated: tuple[int, ...] = ()  # layers without rotary positions, as in SmolLM3
    remember: bool = True  # keep activations for the gradient; False: recompute them

    def blank(self, width: int) -> Norm:
        """Create a norm of this architecture, with scale 1 and shift 0."""
        shift = jnp.zeros(width) if self.norm == "layer" else None
        return Norm(jnp.ones(width), shift, self.epsilon)


class Block(eqx.Module):
    """The parameters of one layer."""

    before: Norm  # attention; with late norms after it
    queries: Linear  # and keys and values, concatenated
    out: Linear
    between: Norm  # attention and MLP; with late norms after the MLP
    up: Linear  # with gates: the gate, then the gated values
    down: Linear
    of_queries: Norm | None
    of_keys: Norm | None

    @classmethod
    def create(cls, key: Key[Array, ""], width: int, form: TransformerForm, layers: int) -> Block:
        """Create a layer with normal weights of deviation inputs^-1/2. Those that add to the
        residual stream are divided by sqrt(2 layers), so that outputs do not grow with depth."""
        heads = form.heads * form.size
        mixed = heads + 2 * form.key_heads * form.size
        rises = form.hidden * (2 if form.gated else 1)
        shapes = [(width, mixed), (heads, width), (width, rises), (form.hidden, width)]
        total = sum(math.prod(shape) for shape in shapes)
        raw = split_flat(jax.random.normal(key, (total,)), shapes)
        shrink = (1.0, (2 * layers) ** -0.5) * 2
        biases = (*form.biases, form.biases[-1])
        linears = [
            Linear(x * (factor * x.shape[0] ** -0.5), jnp.zeros(x.shape[1]) if bias else None)
            for x, factor, bias in zip(raw, shrink, biases, strict=True)
        ]
        norms = [form.blank(width) for _ in range(2)]
        counts = (form.heads, form.key_heads) if form.normed_wholes else (1, 1)
        normed = form.normed_heads or form.normed_wholes
        units = [
            Norm(jnp.ones(count * form.size), None, form.epsilon) if normed else None
            for count in counts
        ]
        return cls(norms[0], linears[0], linears[1], norms[1], linears[2], linears[3], *units)


class Transformer(eqx.Module):
    """A causal stack: token t sees the tokens up to t. See :meth:`create`."""

    blocks: Block | tuple[Block, ...]  # one tree with leaves (layer, ...), or a tuple of layers
    norm: Norm
    places: Float[Array, "room width"] | None
    form: TransformerForm = eqx.field(static=True)

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
        """Create a stack of GPT-2's kind for tokens of ``width`` numbers.

        ``hidden``: units in each MLP (default: 4 ``width``). ``positions``: "none" (the caller's
        tokens contain their positions), "rotary" (Su 2021, arXiv:2104.09864: only distances
        matter, any length) or "learned" (one vector for each of ``room`` positions, added to the
        input). Raises :class:`Mistake` if the width is not a multiple of the heads, for unknown
        positions, and for learned positions without ``room``.
        """
        size = width // heads
        if size * heads != width or (positions == "rotary" and size % 2):
            even = "an even multiple" if positions == "rotary" else "a multiple"
            raise Mistake(f"width {width} must be {even} of {heads} heads. Change width or heads.")
        if positions not in ("none", "rotary", "learned"):
            raise Mistake(f"Unknown positions {positions!r}. Use none, rotary or learned.")
        if positions == "learned" and room is None:
            raise Mistake("Learned positions need a maximum length: pass room=N.")
        units = 4 * width if hidden is None else hidden
        rates = rotary_rates(size) if positions == "rotary" else ()
        form = TransformerForm(heads, heads, size, units, rates=rates)
        stack = cls.with_form(key, width, form, layers)
        if positions != "learned":
            return stack
        places = 0.02 * jax.random.normal(random_keys.fold(key, "places"), (room or 0, width))
        return cls(stack.blocks, stack.norm, places, stack.form)

    @classmethod
    def with_form(
        cls, key: Key[Array, ""], width: int, form: TransformerForm, layers: int
    ) -> Transformer:
        """Create a stack of any architecture."""
        make = jax.vmap(lambda key: Block.create(key, width, form, layers))
        return cls(make(random_keys.split(key, "layer", layers)), form.blank(width), None, form)

    def __call__(
        self,
        x: Float[Array, "batch time width"],
        mask: Bool[Array, "batch time"] | None = None,
        *,
        at: Int[Array, "#batch time"] | None = None,
        segments: Segments | None = None,
        in_blocks: bool = True,
    ) -> Float[Array, "batch time width"]:
        """Return the outputs of whole sequences. No other token attends to those where ``mask`` is
        False (None: all are valid); a token always attends to itself, so padding stays finite. If
        several sequences share a row, ``at`` gives the tokens' positions, and ``segments`` which
        tokens each attends to (it replaces ``mask``). ``in_blocks``: long rows are read in blocks,
        by loops whose length depends on the segments; exported policies have none."""
        at = jnp.arange(x.shape[1], dtype=jnp.int32)[None] if at is None else at
        segments = Segments.causal(x.shape[1], mask) if segments is None else segments
        turn = rotations(at, self.form.rates)
        allowed = None if in_blocks else segments.dense()

        def layer(x: Array, each: tuple[Block, Array | None]) -> tuple[Array, None]:
            block, rotary = each
            queries, keys, values = self._split(block, x, kept_rotation(turn, rotary))
            if allowed is None:
                found = attend_segments(queries, keys, values, segments)
            else:
                found = attend(queries, keys, values, allowed)
            return self._finish(block, x, found), None

        step: Any = layer if self.form.remember else jax.checkpoint(layer)
        each = (self.blocks, self._rotary)
        x, _ = jax.lax.scan(step, self._placed(x, at), each, unroll=UNROLLED_LAYERS)
        return self.norm(x)

    @property
    def depth(self) -> int:
        """The number of layers."""
        blocks = self.blocks
        return len(blocks) if isinstance(blocks, tuple) else blocks.before.scale.shape[0]

    @property
    def layers(self) -> tuple[Block, ...]:
        """The layers as separate trees."""
        blocks = self.blocks
        if isinstance(blocks, tuple):
            return blocks
        return tuple(jax.tree.map(lambda leaf, i=i: leaf[i], blocks) for i in range(self.depth))

    def apart(self) -> Transformer:
        """Return the same stack with each layer in arrays of its own: :meth:`step` is faster."""
        return Transformer(self.layers, self.norm, self.places, self.form)

    def empty(self, batch: int, room: int) -> Cache:
        """Create an empty cache for sequences of at most ``room`` tokens."""
        form, kind = self.form, self.norm.scale.dtype
        shape = {"heads": form.key_heads, "size": form.size}
        return Cache.empty(len(self.layers), batch, room, **shape, dtype=kind)

    def step(
        self,
        x: Float[Array, "batch new width"],
        cache: Cache,
        begin: Int[Array, "batch"],
    ) -> tuple[Float[Array, "batch new width"], Cache]:
        """Return the outputs of the next tokens, one or several, and the cache with them in it.

        Each row's tokens are those from its own position ``begin`` on. They attend to the row's
        tokens before them, and to one another; what the cache holds of later positions is not seen.
        The outputs equal those of :meth:`__call__`, in however many steps a sequence is given.
        """
        at = begin[:, None] + jnp.arange(x.shape[1], dtype=jnp.int32)[None]
        x, written, turn = self._placed(x, at), [], rotations(at, self.form.rates)
        rotary = self._rotary
        for number, (block, *old) in enumerate(
            zip(self.layers, cache.keys, cache.values, strict=True)
        ):
            kept = kept_rotation(turn, None if rotary is None else rotary[number])
            queries, keys, values = self._split(block, x, kept)
            layer = write_tokens((old[0], old[1]), keys, values, begin)
            x = self._finish(block, x, attend_to_cache(queries, layer, at))
            written.append(layer)
        first, second = zip(*written, strict=True)
        return self.norm(x), Cache(first, second, self.form.key_heads)

    @property
    def _rotary(self) -> Bool[Array, "layer"] | None:
        """Whether each layer has rotary positions; None: all have them, if any has."""
        without = self.form.unrotated
        return jnp.array([i not in without for i in range(self.depth)]) if without else None

    def _placed(
        self, x: Float[Array, "batch time width"], at: Int[Array, "#batch time"]
    ) -> Float[Array, "batch time width"]:
        return x if self.places is None else x + self.places[at]

    def _split(
        self, block: Block, x: Float[Array, "batch time width"], turn: Rotation
    ) -> tuple[Float[Array, "batch _ time size"], ...]:
        """Return a layer's queries, keys and values, split into heads."""
        form, (batch, time, _) = self.form, x.shape
        ends = [form.heads, form.heads + form.key_heads]
        mixed = block.queries(x if form.late_norms else block.before(x))
        if form.normed_wholes:
            parts = jnp.split(mixed, [end * form.size for end in ends], -1)
            mixed = jnp.concatenate([*_normed(block, parts[0], parts[1]), parts[2]], -1)
        mixed = mixed.reshape(batch, time, -1, form.size)
        queries, keys, values = jnp.split(jnp.moveaxis(mixed, 2, 1), ends, axis=1)
        if form.normed_heads:
            queries, keys = _normed(block, queries, keys)
        if form.rates:
            queries, keys = (apply_rotation(part, turn) for part in (queries, keys))
        return queries, keys, values

    def _finish(
        self,
        block: Block,
        x: Float[Array, "batch time width"],
        found: Float[Array, "batch head time size"],
    ) -> Float[Array, "batch time width"]:
        """Add attention's output to the residual stream, then the MLP's output."""
        late = self.form.late_norms
        found = block.out(jnp.moveaxis(found, 1, 2).reshape(*x.shape[:2], -1))
        x = x + (block.before(found) if late else found)
        hidden = block.up(x if late else block.between(x))
        if self.form.gated:
            gate, gated = jnp.split(hidden, 2, -1)
            found = block.down(jax.nn.silu(gate) * gated)
        else:
            found = block.down(jax.nn.gelu(hidden))
        return x + (block.between(found) if late else found)


def _normed(block: Block, queries: Array, keys: Array) -> tuple[Array, Array]:
    assert block.of_queries is not None
    assert block.of_keys is not None
    return block.of_queries(queries), block.of_keys(keys)
