"""Random keys by name and counter: a key is a function of (seed, purpose, counter), not a stream.

A new consumer of randomness does not change the numbers of others, and restoring the counters
restores all numbers.

Numbers are drawn by Threefry, a keyed hash strong enough that keys need only be *different*, not
random themselves (Salmon 2011, "Parallel random numbers: as easy as 1, 2, 3"). So keys are derived
by a few integer operations that fuse into one kernel: a Feistel network, one-to-one in the parent
key and in the counter, with MurmurHash3's finaliser as its round function. ``jax.random.fold_in``
would hash twice more, in loops that cost more to compile than a small network.
"""

from __future__ import annotations

import zlib
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, UInt32

ROUND_CONSTANTS = (0x9E3779B9, 0x85EBCA77)  # the last two rounds' constants: any two that differ


@partial(jax.jit, static_argnames="purpose")  # called from the host as well, every step
def for_seeds(
    seeds: Int[Array, "seed"], purpose: str, counter: Int[Array, ""] | int
) -> Key[Array, "seed"]:
    """Return one key per seed for ``purpose`` at ``counter``."""
    return jax.vmap(lambda seed: fold(jax.random.key(seed), purpose, counter))(seeds)


def fold(key: Key[Array, ""], purpose: str, counter: Int[Array, ""] | int = 0) -> Key[Array, ""]:
    """Return the key derived from ``key`` for ``purpose`` at ``counter``."""
    name = jnp.asarray(zlib.crc32(purpose.encode()), jnp.uint32)
    return jax.random.wrap_key_data(_mix(jax.random.key_data(key), name, jnp.asarray(counter)))


@partial(jax.jit, static_argnames="purpose")
def fold_each(
    keys: Key[Array, "seed"], purpose: str, counter: Int[Array, ""] | int = 0
) -> Key[Array, "seed"]:
    """Return ``fold`` of each seed's key."""
    return jax.vmap(lambda key: fold(key, purpose, counter))(keys)


def split(key: Key[Array, ""], purpose: str, count: int) -> Key[Array, "count"]:
    """Return ``count`` keys derived from ``key`` for ``purpose``, at counters 0, 1, ..."""
    counters = jnp.arange(count, dtype=jnp.int32)
    return jax.vmap(lambda counter: fold(key, purpose, counter))(counters)


@jax.jit  # traced once for all purposes
def _mix(
    words: UInt32[Array, "2"], name: UInt32[Array, ""], counter: Int[Array, ""]
) -> UInt32[Array, "2"]:
    """Apply a Feistel network to a key's words; its first rounds mix in name and counter."""
    left, right = words
    left = left ^ murmur_finaliser(right + name)
    right = right ^ murmur_finaliser(left + counter.astype(jnp.uint32))
    for constant in ROUND_CONSTANTS:
        left, right = right, left ^ murmur_finaliser(right + jnp.asarray(constant, jnp.uint32))
    return jnp.stack([left, right])


def murmur_finaliser(word: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """Return MurmurHash3's 32-bit finaliser (Appleby 2011): every input bit affects every output
    bit."""
    word = (word ^ (word >> 16)) * jnp.asarray(0x85EBCA6B, jnp.uint32)
    word = (word ^ (word >> 13)) * jnp.asarray(0xC2B2AE35, jnp.uint32)
    return word ^ (word >> 16)
