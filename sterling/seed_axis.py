"""The seed axis: run a one-seed function for all seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree


def over_seeds(strategy: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs a one-seed function over a leading seed axis.

    ``vmap`` batches the seeds into one set of operations; ``map`` runs them one after another
    inside the program, which makes each of two or more seeds bit-equal whichever run beside it.
    One seed alone XLA may round otherwise, because it removes a loop over one.
    """
    if strategy == "vmap":
        return jax.vmap(function)
    traced_once = jax.jit(function)
    return lambda *args: jax.lax.map(lambda each: _separate_program(traced_once, *each), args)


def over_seeds_in_place(
    strategy: str, function: Callable[..., tuple[Any, Any]]
) -> Callable[..., tuple[Any, Any]]:
    """Return a function that runs ``function(changed, *args) -> (changed, found)`` over a leading
    seed axis, and writes ``changed`` in place.

    Every seed's numbers equal those of :func:`over_seeds`. ``lax.map`` stacks its outputs into new
    arrays, so it would copy the whole agent in every iteration; here a loop carries ``changed``,
    and writes each seed's part back. ``changed`` keeps its shapes and types.
    """
    if strategy == "vmap":
        return jax.vmap(function)
    traced_once = jax.jit(function)

    def over_all(changed: PyTree, *args: PyTree) -> tuple[PyTree, PyTree]:
        seeds = jax.tree.leaves((changed, args))[0].shape[0]

        def each(seed: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
            own = _take_seed((carry[0], *args), seed)
            return jax.tree.map(
                lambda every, one: jax.lax.dynamic_update_index_in_dim(every, one, seed, 0),
                carry,
                _separate_program(traced_once, *own),
            )

        kinds = jax.eval_shape(traced_once, *_take_seed((changed, *args), jnp.int32(0)))[1]
        found = jax.tree.map(lambda x: jax.lax.empty((seeds, *x.shape), x.dtype), kinds)
        return jax.lax.fori_loop(0, seeds, each, (changed, found))

    return over_all


def _take_seed(tree: PyTree, seed: Array) -> PyTree:
    """Return one seed's part of a tree with a leading seed axis."""
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, seed, 0, keepdims=False), tree)


def _separate_program(function: Callable[..., Any], *args: PyTree) -> PyTree:
    """Return ``function(*args)``, compiled separately from the surrounding program.

    XLA removes a loop over a single seed and fuses its body with the surrounding code, which rounds
    differently from the body of a loop over several seeds. It does not fuse into the branch of a
    condition that it cannot decide.
    """
    kinds = jax.eval_shape(function, *args)
    return jax.lax.cond(_opaque_true(args), function, lambda *_: _empty_arrays(kinds), *args)


def _opaque_true(args: PyTree) -> jax.Array:
    """Return True, computed from the data so that XLA cannot know it."""
    leaf = next(x for x in jax.tree.leaves(args) if x.size)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    first = jax.lax.convert_element_type(leaf.ravel()[0], jnp.int32)
    return (first | 1) != 0


def _empty_arrays(kinds: PyTree) -> PyTree:
    return jax.tree.map(lambda kind: jax.lax.empty(kind.shape, kind.dtype), kinds)
