"""Which episode every row of a ring belongs to, found in two gathers however long episodes are."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from sterling.experience.storage import Place, Ring, with_rows
from sterling.types import Record


class EpisodeIndex(eqx.Module):
    """Each row's place in its episode, for every row of a ring.

    An episode is a row of rows that are all experience and of which only the newest is its last:
    one that a crash cut short ends before the crash. Rows that are no experience belong to none.
    """

    elapsed: Int[Array, "seed rows env"]  # steps of the episode before this one
    length: Int[Array, "seed rows env"]  # in an episode's first row: its rows, as far as known

    @classmethod
    def create(cls, ring: Ring) -> EpisodeIndex:
        """That of an empty ring."""
        return cls(*(jnp.zeros(ring.words.shape[:3], jnp.int32) for _ in range(2)))

    def insert(self, ring: Ring, record: Record) -> EpisodeIndex:
        """With the rows ``(seed, time, env, ...)`` that ``ring`` is to be given next."""
        seeds, time, envs = record.mask.shape
        where = jnp.mod(ring.head + jnp.arange(time, dtype=jnp.int32), ring.rows)
        elapsed = self._elapsed(ring, record)
        rows = jnp.broadcast_to(where[None, :, None], elapsed.shape)
        seed = jnp.arange(seeds, dtype=jnp.int32)[:, None, None]
        env = jnp.arange(envs, dtype=jnp.int32)[None, None]
        since = elapsed + (time - 1) - jnp.arange(time, dtype=jnp.int32)[None, :, None]
        known = record.mask & (since < ring.rows)  # else the first row is overwritten by now
        first = jnp.mod(rows - elapsed, ring.rows)
        length = self.length.at[:, where].set(record.mask.astype(jnp.int32))  # where one begins
        return EpisodeIndex(
            self.elapsed.at[:, where].set(elapsed),
            length.at[seed, first, env].max(jnp.where(known, elapsed + 1, 0)),
        )

    def _elapsed(self, ring: Ring, record: Record) -> Int[Array, "seed time env"]:
        """Steps before each new row in its episode, which may have begun in the ring."""
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
        """Steps before these rows in their episodes, and how many rows of those are known; 0 and 0
        where an episode's first row is overwritten and of rows that are no experience."""
        elapsed = self.elapsed[place]
        first = place._replace(row=jnp.mod(place.row - elapsed, ring.rows))
        here = jnp.minimum(ring.count, ring.rows - 1)  # whole rows that the ring holds
        age = jnp.mod(place.row - (ring.head - here), ring.rows)
        known = elapsed <= age
        return jnp.where(known, elapsed, 0), jnp.where(known, self.length[first], 0)

    def shaped(self, rows: int) -> EpisodeIndex:
        """Shapes and types of that of a ring with room for ``rows``."""
        return with_rows(self, rows)

    def grown(self, ring: Ring, rows: int) -> EpisodeIndex:
        """That of ``ring`` once it has room for ``rows``."""
        return EpisodeIndex(ring.moved(self.elapsed, rows), ring.moved(self.length, rows))
