"""The seed axis: one seed's function run for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree


def over_seeds(strategy: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a one-seed function over a leading seed axis.

    ``vmap`` batches the seeds into one set of operations; ``map`` runs them one after another
    inside the program, which makes N seeds bit-equal to the same seeds alone.
    """
    if strategy == "vmap":
        return jax.vmap(function)
    traced_once = jax.jit(function)
    return lambda *args: jax.lax.map(lambda each: _apart(traced_once, *each), args)


def changing_seeds(
    strategy: str, function: Callable[..., tuple[Any, Any]]
) -> Callable[..., tuple[Any, Any]]:
    """Run ``function(changed, *args) -> (changed, found)`` over a leading seed axis.

    Every seed's numbers are those of :func:`over_seeds`. ``lax.map`` stacks what comes out into
    new arrays, so it copies all that an agent is in every iteration; here a loop carries what is
    changed, and each seed's part is written back in its place. ``changed`` keeps its shapes and
    types.
    """
    if strategy == "vmap":
        return jax.vmap(function)
    traced_once = jax.jit(function)

    def over_all(changed: PyTree, *args: PyTree) -> tuple[PyTree, PyTree]:
        seeds = jax.tree.leaves((changed, args))[0].shape[0]

        def each(seed: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
            own = _of_seed((carry[0], *args), seed)
            return jax.tree.map(
                lambda every, one: jax.lax.dynamic_update_index_in_dim(every, one, seed, 0),
                carry,
                _apart(traced_once, *own),
            )

        kinds = jax.eval_shape(traced_once, *_of_seed((changed, *args), jnp.int32(0)))[1]
        found = jax.tree.map(lambda x: jax.lax.empty((seeds, *x.shape), x.dtype), kinds)
        return jax.lax.fori_loop(0, seeds, each, (changed, found))

    return over_all


def _of_seed(tree: PyTree, seed: Array) -> PyTree:
    """One seed's part of what has a leading seed axis."""
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, seed, 0, keepdims=False), tree)


def _apart(function: Callable[..., Any], *args: PyTree) -> PyTree:
    """``function(*args)`` as a program of its own.

    XLA compiles a loop over one seed away and joins its body to what stands around it, which
    rounds differently from the body of a loop over several; the branch of a condition that it
    cannot decide stays as it is.
    """
    kinds = jax.eval_shape(function, *args)
    return jax.lax.cond(_always(args), function, lambda *_: _empty(kinds), *args)


def _always(args: PyTree) -> jax.Array:
    """True, computed from the data."""
    leaf = next(x for x in jax.tree.leaves(args) if x.size)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    first = jax.lax.convert_element_type(leaf.ravel()[0], jnp.int32)
    return (first | 1) != 0


def _empty(kinds: PyTree) -> PyTree:
    return jax.tree.map(lambda kind: jax.lax.empty(kind.shape, kind.dtype), kinds)
