"""The layout for single tokens against attention written plainly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.nets import key_value_cache
from sterling.nets.attention.dense_attention import attend
from sterling.nets.key_value_cache import Cache, attend_to_cache, write_tokens

BATCH, HEADS, FEW, SIZE, ROOM = 3, 4, 2, 6, 7


def drawn(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


def empty(batch=BATCH, room=ROOM):
    return Cache.empty(1, batch, room, heads=FEW, size=SIZE, dtype=jnp.float32)


def filled(cache, keys, values, begin=0):
    """A layer's cache with these tokens from a place on, in two pieces."""
    layer, begin = (cache.keys[0], cache.values[0]), jnp.full(BATCH, begin, jnp.int32)
    layer = write_tokens(layer, keys[:, :, :3], values[:, :, :3], begin)
    return write_tokens(layer, keys[:, :, 3:], values[:, :, 3:], begin + 3)


@pytest.mark.parametrize("block", [128, 4])
def test_key_value_cache_attention_equals_plain_attention(block, monkeypatch):
    """At once, and in two blocks; rows are at different positions, one in the first block."""
    monkeypatch.setattr(key_value_cache, "BLOCK", block)
    keys, values = drawn(0, BATCH, FEW, ROOM, SIZE), drawn(1, BATCH, FEW, ROOM, SIZE)
    queries, at = drawn(2, BATCH, HEADS, 2, SIZE), jnp.array([[1, 2], [5, 6], [2, 3]], jnp.int32)
    allowed = jnp.arange(ROOM)[None, None] <= at[..., None]
    cache = empty()
    assert cache.keys[0].shape[2] == (ROOM if block > ROOM else 8)
    found = attend_to_cache(queries, filled(cache, keys, values), at)
    expected = attend(queries, keys, values, allowed)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_how_far_other_rows_have_come_does_not_change_a_row(monkeypatch):
    monkeypatch.setattr(key_value_cache, "BLOCK", 4)
    keys, values = drawn(0, BATCH, FEW, ROOM, SIZE), drawn(1, BATCH, FEW, ROOM, SIZE)
    queries, layer = drawn(2, BATCH, HEADS, 1, SIZE), filled(empty(), keys, values)
    near, far = (jnp.array([[2], [other], [1]], jnp.int32) for other in (0, 6))
    attended = jax.jit(attend_to_cache)
    one, other = (np.asarray(attended(queries, layer, at)) for at in (near, far))
    np.testing.assert_array_equal(one[[0, 2]], other[[0, 2]])
    assert (one[1] != other[1]).any()


def test_key_value_cache_writes_each_row_from_its_own_place():
    cache, begin = empty(), jnp.array([0, 2, 5], jnp.int32)
    keys, values = drawn(0, BATCH, FEW, 2, SIZE), drawn(1, BATCH, FEW, 2, SIZE)
    found = write_tokens((cache.keys[0], cache.values[0]), keys, values, begin)
    for row, place in enumerate((0, 2, 5)):
        for head in range(FEW):
            pair, at = row * FEW + head, slice(place, place + 2)
            np.testing.assert_array_equal(found[0][pair][:, at].T, keys[row, head])
            np.testing.assert_array_equal(found[1][pair][at], values[row, head])
    for part in found:
        assert (np.asarray(part) != 0).sum() == BATCH * FEW * 2 * SIZE  # nothing else is written


def test_key_value_cache_takes_rows_of_another():
    def random(seed, batch):
        return Cache(
            (drawn(seed, batch * FEW, SIZE, ROOM),),
            (drawn(seed + 1, batch * FEW, ROOM, SIZE),),
            FEW,
        )

    old, other = random(0, BATCH), random(2, 2)
    source, row = jnp.array([1, 1, 0], jnp.int32), jnp.array([2, 0, BATCH], jnp.int32)
    found = jax.jit(Cache.with_rows)(old, other, source, row)  # the third is no row: left out
    for part in ("keys", "values"):
        (new,), (own,), (taken,) = (getattr(each, part) for each in (found, old, other))
        for kept in (0, 2):
            np.testing.assert_array_equal(new[kept * FEW : (kept + 1) * FEW], taken[FEW:])
        np.testing.assert_array_equal(new[FEW : 2 * FEW], own[FEW : 2 * FEW])
