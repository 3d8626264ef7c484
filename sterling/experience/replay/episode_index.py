"""An index of the episode that each row of a ring belongs to, read with two gathers at any episode
length."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from sterling.experience.replay.ring_buffer import Place, Ring, shapes_with_rows
from sterling.types import Record


class EpisodeIndex(eqx.Module):
    """Every row's position in its episode, for all rows of a ring.

    An episode is a run of unmasked rows of which only the newest has ``last``; one that a crash
    interrupts ends before the crash. Masked rows belong to no episode.
    """

    elapsed: Int[Array, "seed rows env"]  # steps of the episode before this one
    length: Int[Array, "seed rows env"]  # stored in an episode's first row: the rows known so far

    @classmethod
    def create(cls, ring: Ring) -> EpisodeIndex:
        """Create the index of an empty ring."""
        return cls(*(jnp.zeros(ring.words.shape[:3], jnp.int32) for _ in range(2)))

    def insert(self, ring: Ring, record: Record) -> EpisodeIndex:
        """Return the index with the rows ``(seed, time, env, ...)`` that are about to be added to
        ``ring``."""
        seeds, time, envs = record.mask.shape
        where = jnp.mod(ring.head + jnp.arange(time, dtype=jnp.int32), ring.rows)
        elapsed = self._elapsed(ring, record)
        rows = jnp.broadcast_to(where[None, :, None], elapsed.shape)
        seed = jnp.arange(seeds, dtype=jnp.int32)[:, None, None]
        env = jnp.arange(envs, dtype=jnp.int32)[None, None]
        since = elapsed + (time - 1) - jnp.arange(time, dtype=jnp.int32)[None, :, None]
        known = record.mask & (since < ring.rows)  # otherwise the first row has been overwritten
        first = jnp.mod(rows - elapsed, ring.rows)
        length = self.length.at[:, where].set(record.mask.astype(jnp.int32))  # if one begins here
        return EpisodeIndex(
            self.elapsed.at[:, where].set(elapsed),
            length.at[seed, first, env].max(jnp.where(known, elapsed + 1, 0)),
        )

    def _elapsed(self, ring: Ring, record: Record) -> Int[Array, "seed time env"]:
        """Return each new row's step number in its episode, which may have begun in the ring."""
        shape = (record.mask.shape[0], record.mask.shape[2])
        newest = jnp.broadcast_to(jnp.mod(ring.head - 1, ring.rows), shape)
        env = jnp.broadcast_to(jnp.arange(shape[1], dtype=jnp.int32), shape)
        place = Place.of_all(newest, env)
        _, _, last, mask = ring.scalars(place)
        before = jnp.where(mask & ~last, self.elapsed[place] + 1, 0)

        def step(before: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            last, mask = row
            elapsed = jnp.where(mask, before, 0)
            return jnp.where(mask & ~last, elapsed + 1, 0), elapsed

        by_time = jnp.swapaxes(record.last, 0, 1), jnp.swapaxes(record.mask, 0, 1)
        return jnp.swapaxes(jax.lax.scan(step, before, by_time)[1], 0, 1)

    def lookup(self, ring: Ring, place: Place) -> tuple[Int[Array, "..."], Int[Array, "..."]]:
        """Return the rows' step numbers in their episodes, and the episodes' known lengths.

        Both are 0 for masked rows, and for episodes whose first row was overwritten.
        """
        elapsed = self.elapsed[place]
        first = place._replace(row=jnp.mod(place.row - elapsed, ring.rows))
        here = jnp.minimum(ring.count, ring.rows - 1)  # complete rows in the ring
        age = jnp.mod(place.row - (ring.head - here), ring.rows)
        known = elapsed <= age
        return jnp.where(known, elapsed, 0), jnp.where(known, self.length[first], 0)

    def shapes_with_capacity(self, rows: int) -> EpisodeIndex:
        """Return the index's shapes and dtypes at a capacity of ``rows``."""
        return shapes_with_rows(self, rows)

    def with_capacity(self, ring: Ring, rows: int) -> EpisodeIndex:
        """Return the index after ``ring`` grows to a capacity of ``rows``."""
        return EpisodeIndex(
            ring.oldest_first(self.elapsed, rows), ring.oldest_first(self.length, rows)
        )
