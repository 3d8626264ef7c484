"""What all streaming learners do with a step: units of observations and rewards, one environment,
and whether a step continues the one before.

A trace must not reach from one episode into the next. Episodes end in rows that say so; but a run
that is resumed with a simulator that cannot be saved, or goes on in another world, begins another
episode without such a row. So a learner keeps a fingerprint of the observation that the next row
must begin with. It is a number, not the observation: nothing of the past is stored.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, UInt32

from sterling.equations.running_moments import Moments
from sterling.nets.running_statistics import ObsNormaliser, RewardNormaliser
from sterling.random_keys import murmur_finaliser
from sterling.types import Mistake, Obs, Record, Spec


def check_one_env(name: str, spec: Spec) -> None:
    """Raise :class:`Mistake` if there are several environments."""
    if spec.envs != 1:
        raise Mistake(
            f"{name} learns from one stream of experience, and there are {spec.envs} envs. "
            "Use envs=1."
        )


def create_obs_statistics(spec: Spec, enabled: bool) -> ObsNormaliser:
    """Return a normaliser of observations that clips nothing."""
    return ObsNormaliser.create(spec.obs, enabled, math.inf)


def create_reward_statistics(enabled: bool) -> RewardNormaliser:
    """Return a normaliser of the rewards of one environment that clips nothing."""
    return RewardNormaliser(Moments.create(()), jnp.zeros(1), enabled, math.inf)


def fingerprint(obs: Obs) -> UInt32[Array, ""]:
    """Return a 32-bit hash of all numbers of an observation."""
    total = jnp.zeros((), jnp.uint32)
    for leaf in jax.tree.leaves(obs):
        flat = leaf.reshape(-1)
        is_wide = flat.dtype.kind == "f" and flat.dtype.itemsize == 4
        words = jax.lax.bitcast_convert_type(flat, jnp.uint32) if is_wide else flat
        places = jnp.arange(1, flat.size + 1, dtype=jnp.uint32)
        mixed = murmur_finaliser(words.astype(jnp.uint32) + murmur_finaliser(places))
        total = murmur_finaliser(total) + jnp.sum(mixed, dtype=jnp.uint32)
    return total


def is_continued(batch: Record, expected: UInt32[Array, ""]) -> Bool[Array, ""]:
    """Return whether the row begins with the observation whose fingerprint was ``expected``."""
    return fingerprint(batch.obs) == expected


def trace_share(batch: Record) -> Float[Array, ""]:
    """Return by how much the trace counts in the next row: the row's discount, or 0 where an
    episode ends or the row is no experience."""
    goes_on = batch.mask[0, 0] & ~batch.last[0, 0]
    return jnp.where(goes_on, batch.discount[0, 0], 0.0)
