"""Named, counted randomness: a key is a function of (seed, purpose, counter), never a stream.

A new consumer cannot shift anybody else's randomness, and restoring the counters restores it.
"""

from __future__ import annotations

import zlib
from functools import partial

import jax
from jaxtyping import Array, Int, Key


@partial(jax.jit, static_argnames="purpose")  # called from the host as well, every step
def at(
    seeds: Int[Array, "seed"], purpose: str, counter: Int[Array, ""] | int
) -> Key[Array, "seed"]:
    """One key per seed for ``purpose`` at ``counter``."""
    return jax.vmap(lambda seed: fold(jax.random.key(seed), purpose, counter))(seeds)


def fold(key: Key[Array, ""], purpose: str, counter: Int[Array, ""] | int = 0) -> Key[Array, ""]:
    """The key for ``purpose`` at ``counter`` below ``key``."""
    named = jax.random.fold_in(key, zlib.crc32(purpose.encode()) & 0x7FFFFFFF)
    return jax.random.fold_in(named, counter)


@partial(jax.jit, static_argnames="purpose")
def fold_each(
    keys: Key[Array, "seed"], purpose: str, counter: Int[Array, ""] | int = 0
) -> Key[Array, "seed"]:
    """``fold`` for one key per seed."""
    return jax.vmap(lambda key: fold(key, purpose, counter))(keys)
