"""The layout for single tokens against attention written plainly."""

import jax
import jax.numpy as jnp
import numpy as np

from sterling.nets.key_value_cache import EMPTY_POSITION, Cache, attend_to_cache, write_tokens
from sterling.nets.transformer import attend

BATCH, HEADS, FEW, SIZE, ROOM = 3, 4, 2, 6, 7


def drawn(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


def empty(batch=BATCH, room=ROOM):
    return Cache.empty(1, batch, room, heads=FEW, size=SIZE, dtype=jnp.float32)


def test_key_value_cache_attention_equals_plain_attention():
    keys, values = drawn(0, BATCH, FEW, ROOM, SIZE), drawn(1, BATCH, FEW, ROOM, SIZE)
    queries = drawn(2, BATCH, HEADS, 2, SIZE)
    allowed = jax.random.bernoulli(jax.random.key(3), 0.5, (BATCH, 2, ROOM)).at[:, :, 0].set(True)
    cache = empty()
    layer = write_tokens((cache.keys[0], cache.values[0]), keys[:, :, :3], values[:, :, :3], 0)
    layer = write_tokens(layer, keys[:, :, 3:], values[:, :, 3:], 3)
    expected = attend(queries, keys, values, allowed)
    np.testing.assert_allclose(
        attend_to_cache(queries, layer, allowed), expected, rtol=1e-5, atol=1e-6
    )


def test_key_value_cache_writes_tokens_into_the_ring():
    new, place = 3, 2  # so that they lie at places 6, 0 and 1
    old = Cache(
        (drawn(0, BATCH * FEW, SIZE, ROOM),),
        (drawn(1, BATCH * FEW, ROOM, SIZE),),
        jnp.arange(BATCH * ROOM, dtype=jnp.int32).reshape(BATCH, ROOM),
    )
    fresh = Cache(
        (drawn(2, 2 * FEW, SIZE, new),),
        (drawn(3, 2 * FEW, new, SIZE),),
        jnp.array([[0, 1, 2], [EMPTY_POSITION, 0, 1]], jnp.int32),
    )
    row = jnp.array([1, BATCH], jnp.int32)  # the second is no row: it is left out
    found = jax.jit(Cache.with_rows)(old, fresh, row, jnp.asarray(place, jnp.int32))
    where = jnp.array([6, 0, 1])
    for head in range(FEW):
        np.testing.assert_array_equal(found.keys[0][FEW + head][:, where], fresh.keys[0][head])
        np.testing.assert_array_equal(found.values[0][FEW + head][where], fresh.values[0][head])
    np.testing.assert_array_equal(found.position[1], [1, 2, *[EMPTY_POSITION] * 4, 0])
    for kept in (0, 2):
        np.testing.assert_array_equal(found.position[kept], old.position[kept])
        pairs = slice(kept * FEW, (kept + 1) * FEW)
        np.testing.assert_array_equal(found.keys[0][pairs], old.keys[0][pairs])
        np.testing.assert_array_equal(found.values[0][pairs], old.values[0][pairs])


def test_key_value_cache_enlarges_at_the_end():
    small = Cache(
        (drawn(0, BATCH * FEW, SIZE, 2),),
        (drawn(1, BATCH * FEW, 2, SIZE),),
        jnp.full((BATCH, 2), 5, jnp.int32),
    )
    large = small.enlarge(ROOM)
    assert jax.tree.map(jnp.shape, large) == jax.tree.map(jnp.shape, empty())
    np.testing.assert_array_equal(large.keys[0][:, :, :2], small.keys[0])
    np.testing.assert_array_equal(large.values[0][:, :2], small.values[0])
    np.testing.assert_array_equal(large.position, [[5, 5, *[EMPTY_POSITION] * 5]] * BATCH)
