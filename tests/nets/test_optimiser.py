"""Adam on packed leaves is optax's Adam on leaves as they are."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sterling.nets.optimiser import SMALL_LEAF, PackedLeaves, adam, global_norm, radam


def tree(key, shapes):
    keys = jax.random.split(key, len(shapes))
    return {
        f"{i}": jax.random.normal(each, shape)
        for i, (each, shape) in enumerate(zip(keys, shapes, strict=True))
    }


MIXED = [(3,), (40, 40), (), (SMALL_LEAF - 1,), (SMALL_LEAF,), (2, 5)]
SHAPES = pytest.mark.parametrize("shapes", [MIXED, [(3,), (4,)], [(64, 64)]])


@SHAPES
@pytest.mark.parametrize("max_norm", [None, 0.5])
def test_adam_on_packed_leaves_equals_optax(shapes, max_norm):
    params = tree(jax.random.key(0), shapes)
    mine = adam(1e-5, max_norm)
    clip = optax.clip_by_global_norm(max_norm) if max_norm else optax.identity()
    theirs = optax.chain(clip, optax.scale_by_adam(eps=1e-5))
    state, other = mine.init(params), theirs.init(params)
    draw = jax.jit(lambda key: tree(key, shapes))
    update, update_theirs = jax.jit(mine.update), jax.jit(theirs.update)
    for step in range(3):
        grads = draw(jax.random.key(step + 1))
        direction, state = update(grads, state)
        with jax.numpy_dtype_promotion("standard"):
            expected, other = update_theirs(grads, other)
        for one, two in zip(jax.tree.leaves(direction), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


def test_radam_begins_as_momentum_and_ends_as_adam():
    """With equal gradients momentum steps by the gradient, and Adam by 1 (Liu 2020)."""
    grads = {"weight": jnp.full(3, 0.5)}
    state, steps = radam().init(grads), []
    update = jax.jit(radam().update)
    for _ in range(4):
        direction, state = update(grads, state)
        steps.append(float(direction["weight"][0]))
    np.testing.assert_allclose(steps, 0.5, rtol=1e-4)
    aged = jax.tree.map(lambda x: jnp.full_like(x, 100_000) if x.ndim == 0 else x, state)
    m, v = (1.0 - 0.9**4) * 0.5, (1.0 - 0.999**4) * 0.25
    wanted = (0.9 * m + 0.05) / np.sqrt(0.999 * v + 0.00025)
    np.testing.assert_allclose(update(grads, aged)[0]["weight"], wanted, rtol=1e-4)


@SHAPES
def test_optimiser_packed_leaves_unpack_exactly(shapes):
    full = tree(jax.random.key(0), shapes)
    back = PackedLeaves.from_tree(full).unpack(full)
    for one, two in zip(jax.tree.leaves(back), jax.tree.leaves(full), strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_allclose(global_norm(full), optax.global_norm(full), rtol=1e-6)


def test_optimiser_keeps_the_dtype_of_every_leaf():
    kinds = {"scale": jnp.ones(4), "weight": jnp.ones((4, 4), jnp.bfloat16)}
    with jax.numpy_dtype_promotion("standard"):
        direction, _ = adam().update(kinds, adam().init(kinds))
    assert {name: x.dtype for name, x in direction.items()} == {
        name: x.dtype for name, x in kinds.items()
    }
