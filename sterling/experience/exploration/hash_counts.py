"""Counts of hashed observations (Tang 2017, arXiv:1611.04717): the n-th visit pays 1/sqrt(n).

    code   = sign(A x) of 32 bits,  A a fixed matrix of standard normal numbers     (eq. 3, SimHash)
    b(s')  = 1 / sqrt(n(code(s')))                                                  (eq. 2)

x are the observation's numbers, one-hot where they are choices (pictures: features of a random
network). Codes are hashed into ``SLOTS`` counts, so two may share one by chance.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.experience.exploration.exploration_bonus import bonus_layer
from sterling.nets.obs_encoder import Encoder
from sterling.types import Obs, Record, Spec

BITS = 32
SLOTS = 1 << 16


class HashCounts(eqx.Module):
    """The bonus of counts, of one seed."""

    torso: Encoder  # never learns
    projection: Float[Array, "features bits"]
    counts: Int[Array, "slots"]

    @classmethod
    def create(cls, key: Key[Array, ""], spec: Spec) -> HashCounts:
        """Create counts of nothing."""
        torso = Encoder.create(random_keys.fold(key, "torso"), spec.obs)
        shape = (torso.size, BITS)
        projection = jax.random.normal(random_keys.fold(key, "projection"), shape)
        return cls(torso, projection, jnp.zeros(SLOTS, jnp.int32))

    def explore(self, rows: Record, key: Key[Array, ""]) -> tuple[HashCounts, Float[Array, "row"]]:
        """Count the rows, then give each 1/sqrt(n)."""
        slot = self.slots(rows.next_obs)
        counts = self.counts.at[slot].add(rows.mask.astype(jnp.int32))
        seen = jnp.maximum(counts[slot], 1).astype(jnp.float32)
        return eqx.tree_at(lambda own: own.counts, self, counts), jax.lax.rsqrt(seen)

    def slots(self, obs: Obs) -> Int[Array, "row"]:
        """Return the place of each observation's count."""
        bits = (self.torso(obs) @ self.projection > 0.0).astype(jnp.uint32)
        weights = jnp.uint32(1) << jnp.arange(BITS, dtype=jnp.uint32)
        code = jnp.sum(bits * weights[None], -1, dtype=jnp.uint32)
        return (random_keys.murmur_finaliser(code) % SLOTS).astype(jnp.int32)


LAYER = bonus_layer(
    "counts",
    "a bonus of 1/sqrt(n) for an observation seen n times",
    0.1,
    HashCounts.create,
    scaled=False,
)
