"""Attention over rows of several segments, in blocks: memory grows with the tokens, not their
square.

The tokens of a row lie in blocks. Each block of queries reads only the blocks of keys that some
token of it sees, one after another, with running sums of the softmax; the gradient computes the
weights again from the queries, the keys and the softmax's denominators (Dao 2022,
arXiv:2205.14135, algorithms 1 and 4). Which tokens see which is computed from three numbers a token
(:class:`Segments`), for one pair of blocks at a time. Blocks of queries that read equally many
blocks of keys are processed together, whichever rows they are from.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sterling.nets.attention.dense_attention import attend
from sterling.nets.attention.segments import BLOCK, BlockReads, Segments
from sterling.nets.key_value_cache import MASKED_SCORE

LONGEST_DENSE = 128  # tokens of a row; on a CPU, longer ones are faster in blocks
CPU_SCORES = 1 << 15  # scores (heads x queries x keys) computed at once; measured
SCORES = 1 << 24  # on other devices; not measured
Blocks = Float[Array, "batch block key_heads row size"]  # a row: a token of a query head
Sums = Float[Array, "batch block key_heads row"]


def attend_segments(
    queries: Float[Array, "batch head time size"],
    keys: Float[Array, "batch key_heads time size"],
    values: Float[Array, "batch key_heads time size"],
    segments: Segments,
) -> Float[Array, "batch head time size"]:
    """Return :func:`sterling.nets.attention.dense_attention.attend` over the tokens that each token
    sees; rows of more than ``LONGEST_DENSE`` tokens are read in blocks."""
    if queries.shape[2] <= LONGEST_DENSE:
        return attend(queries, keys, values, segments.dense())
    return attend_in_blocks(queries, keys, values, segments)


def attend_in_blocks(
    queries: Float[Array, "batch head time size"],
    keys: Float[Array, "batch key_heads time size"],
    values: Float[Array, "batch key_heads time size"],
    segments: Segments,
) -> Float[Array, "batch head time size"]:
    """Return what :func:`attend_segments` does, for rows of any length."""
    batch, head, time, size = queries.shape
    few, spare = keys.shape[1], -time % BLOCK
    count = (time + spare) // BLOCK

    def blocks(x: Array) -> Array:
        x = jnp.pad(x, ((0, 0), (0, 0), (0, spare), (0, 0)))
        x = x.reshape(batch, few, -1, count, BLOCK, size)
        return jnp.moveaxis(x, 3, 1).reshape(batch, count, few, -1, size)

    whole = _whole_blocks(segments, batch, spare)
    found = _attend(blocks(queries), blocks(keys), blocks(values), whole)
    found = jnp.moveaxis(found.reshape(batch, count, few, -1, BLOCK, size), 1, 3)
    return found.reshape(batch, head, -1, size)[:, :, :time]


def _whole_blocks(segments: Segments, batch: int, spare: int) -> Segments:
    """Return the segments of all rows, with ``spare`` tokens more that see themselves."""
    time = segments.begin.shape[1]
    at = jnp.arange(time, time + spare, dtype=jnp.int32)[None]

    def add(x: Array, more: Array) -> Array:
        rows = (jnp.broadcast_to(part, (batch, part.shape[1])) for part in (x, more))
        return jnp.concatenate([*rows], 1)

    begin, prefix, end = (add(x, at) for x in (segments.begin, segments.prefix, segments.end))
    valid = None if segments.valid is None else add(segments.valid, at >= 0)
    return Segments(begin, prefix, end, valid)


@jax.custom_vjp
def _attend(queries: Blocks, keys: Blocks, values: Blocks, segments: Segments) -> Blocks:
    return _forward(queries, keys, values, segments)[0]


def _attend_and_keep(
    queries: Blocks, keys: Blocks, values: Blocks, segments: Segments
) -> tuple[Blocks, tuple[Any, ...]]:
    output, total = _forward(queries, keys, values, segments)
    return output, (queries, keys, values, segments, output, total)


def _gradients(kept: tuple[Any, ...], change: Blocks) -> tuple[Blocks, Blocks, Blocks, None]:
    queries, keys, values, segments, output, total = kept
    product = jnp.sum(output.astype(jnp.float32) * change.astype(jnp.float32), -1)
    return *_backward((queries, keys, values, segments, change, total, product)), None


_attend.defvjp(_attend_and_keep, _gradients)


def _over_batch(function: Any) -> Any:
    """Let ``vmap`` add rows to the batch, so that bounds of loops stay single numbers."""
    mapped = jax.custom_batching.custom_vmap(function)

    @mapped.def_vmap
    def over_batch(size: int, batched: Any, *args: Any) -> tuple[Any, Any]:
        def joined(x: Array, has_axis: bool) -> Array:
            x = x if has_axis else jnp.broadcast_to(x, (size, *x.shape))
            return x.reshape(-1, *x.shape[2:])

        found = mapped(*jax.tree.map(joined, args, tuple(batched)))
        apart = jax.tree.map(lambda x: x.reshape(size, -1, *x.shape[1:]), found)
        return apart, jax.tree.map(lambda _: True, apart)

    return mapped


@_over_batch
def _forward(
    queries: Blocks, keys: Blocks, values: Blocks, segments: Segments
) -> tuple[Blocks, Sums]:
    """Return the output, and the logarithms of the softmax's denominators."""
    count, (flat, flat_keys, flat_values) = queries.shape[1], _flat(queries, keys, values)
    reading = BlockReads.from_segments(segments, queries.shape[0])

    def group(number: Int[Array, "pair"]) -> tuple[Array, Array]:
        mine = flat[number]

        def add(step: Array, sums: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            read, seen = reading.pair(number, step, count)
            scores = _scores(mine, flat_keys[read], seen)
            largest = jnp.maximum(sums[0], jnp.max(scores, -1))
            weights, shrink = jnp.exp(scores - largest[..., None]), jnp.exp(sums[0] - largest)
            more = _product("gkqr,gkrs->gkqs", weights.astype(values.dtype), flat_values[read])
            total = sums[1] * shrink + jnp.sum(weights, -1)
            return largest, total, sums[2] * shrink[..., None] + more

        zeros = jnp.zeros(mine.shape[:-1])
        begin = (zeros + MASKED_SCORE, zeros, jnp.zeros(mine.shape))
        largest, total, output = jax.lax.fori_loop(0, reading.most(number), add, begin)
        return (output / total[..., None]).astype(queries.dtype), largest + jnp.log(total)

    groups, place = reading.groups(_group_size(queries))
    found = jax.lax.map(group, groups)
    output, total = (x.reshape(-1, *x.shape[2:])[place] for x in found)
    return output.reshape(queries.shape), total.reshape(queries.shape[:-1])


@_over_batch
def _backward(kept: tuple[Any, ...]) -> tuple[Blocks, Blocks, Blocks]:
    """Return the gradients of queries, keys and values, given that of the output (``change``) and
    its product with the output."""
    queries, keys, values, segments, change, total, product = kept
    size, count = queries.shape[-1], queries.shape[1]
    flat, flat_keys, flat_values = _flat(queries, keys, values)
    given = _flat(change, total, product)
    reading = BlockReads.from_segments(segments, queries.shape[0])

    def group(
        sums: tuple[Array, Array], number: Int[Array, "pair"]
    ) -> tuple[tuple[Array, Array], Array]:
        mine = flat[number]
        pull, denominator, mean = (x[number] for x in given)

        def add(step: Array, sums: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            read, seen = reading.pair(number, step, count)
            key, value = flat_keys[read], flat_values[read]
            weights = jnp.exp(_scores(mine, key, seen) - denominator[..., None])
            slope = _product("gkqs,gkrs->gkqr", pull, value) - mean[..., None]
            slope = (weights * slope * size**-0.5).astype(key.dtype)
            weights = weights.astype(key.dtype)
            return (
                sums[0] + _product("gkqr,gkrs->gkqs", slope, key),
                sums[1].at[read].add(_product("gkqr,gkqs->gkrs", slope, mine)),
                sums[2].at[read].add(_product("gkqr,gkqs->gkrs", weights, pull)),
            )

        begin = (jnp.zeros(mine.shape), *sums)
        found = jax.lax.fori_loop(0, reading.most(number), add, begin)
        return found[1:], found[0].astype(queries.dtype)

    groups, place = reading.groups(_group_size(queries))
    zeros = jnp.zeros(flat_keys.shape)
    sums, found = jax.lax.scan(group, (zeros, zeros), groups)
    of_queries = found.reshape(-1, *found.shape[2:])[place].reshape(queries.shape)
    of_keys, of_values = (x.reshape(keys.shape).astype(keys.dtype) for x in sums)
    return of_queries, of_keys, of_values


def _group_size(queries: Blocks) -> int:
    """Return how many blocks are processed together: as many scores as a processor's cache holds,
    elsewhere as keep many units busy."""
    scores = CPU_SCORES if jax.default_backend() == "cpu" else SCORES
    return scores // (math.prod(queries.shape[2:4]) * BLOCK)


def _flat(*parts: Array) -> tuple[Array, ...]:
    """Put the blocks of all rows on one axis."""
    return tuple(x.reshape(-1, *x.shape[2:]) for x in parts)


def _product(form: str, one: Array, other: Array) -> Array:
    return jnp.einsum(form, one, other, preferred_element_type=jnp.float32)


def _scores(
    queries: Float[Array, "pair key_heads row size"],
    keys: Float[Array, "pair key_heads key size"],
    seen: Bool[Array, "pair query key"],
) -> Float[Array, "pair key_heads row key"]:
    scores = _product("gkqs,gkrs->gkqr", queries, keys) * queries.shape[-1] ** -0.5
    by_head = scores.reshape(*scores.shape[:2], -1, *seen.shape[1:])
    return jnp.where(seen[:, None, None], by_head, MASKED_SCORE).reshape(scores.shape)
