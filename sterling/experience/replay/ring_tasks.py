"""Rows of a ring that are of the same task, by an index that is sorted anew now and then: to sort a
large ring in every iteration would cost more than many updates."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from sterling.experience.replay.ring_buffer import Place, Ring
from sterling.experience.task_index import NO_ROW, TaskIndex, task_bits
from sterling.types import AnyNeeds, Record, SameTask

NEW_ROWS = 256  # it is sorted anew before a share of 1 / NEW_ROWS of the rows is newer than it


class RingTasks(eqx.Module):
    """The rows in the order of their tasks, for every number that tells tasks apart.

    The newest rows, and those that were overwritten, may be up to one in ``NEW_ROWS``. Beside a row
    stand rows that were of its task when the index was sorted; in place of one that is no longer
    stands the row itself, as for a task without any. Rings of fewer rows are always sorted.
    """

    indices: dict[str, TaskIndex]  # leaves ``(seed, row)``, by the name of the stored number
    left: Int[Array, ""]  # rows of every env until they are sorted anew
    envs: int = eqx.field(static=True)

    @classmethod
    def create(cls, ring: Ring, needs: AnyNeeds) -> RingTasks | None:
        """Create the index of an empty ring; None if no feed asks for rows of the same task."""
        names = {name for feed in needs.feeds for name in feed.tasks}
        seeds, rows, envs = ring.words.shape[:3]
        return cls._empty(sorted(names), (seeds, rows, envs)) if names else None

    @classmethod
    def _empty(cls, names: list[str], shape: tuple[int, int, int]) -> RingTasks:
        seeds, rows, envs = shape

        def index() -> TaskIndex:
            numbers = jnp.zeros((seeds, rows * envs), jnp.uint32)
            return TaskIndex(numbers, numbers.astype(jnp.int32), jnp.zeros(seeds, jnp.int32))

        return cls({name: index() for name in names}, jnp.zeros((), jnp.int32), envs)

    def insert(self, ring: Ring, record: Record) -> RingTasks:
        """Return the index with the rows ``(seed, time, env, ...)`` that are about to be added to
        ``ring``: not sorted yet."""
        return dataclasses.replace(self, left=self.left - record.mask.shape[1])

    @eqx.filter_jit  # for host worlds; no effect inside a compiled program
    def sorted_anew(self, ring: Ring) -> RingTasks:
        """Return the index of the rows of ``ring``, sorted if it is due."""

        def sort(_: RingTasks) -> RingTasks:
            indices = {name: index_tasks(ring, name) for name in self.indices}
            return RingTasks(indices, ring.count // NEW_ROWS, self.envs)

        return jax.lax.cond(self.left <= 0, sort, lambda old: old, self)

    def draw(
        self, ring: Ring, law: SameTask, row: Int[Array, "seed ..."], keys: Key[Array, "seed"]
    ) -> Int[Array, "seed ... rows"]:
        """Return rows of the task of each row, by their numbers; ``NO_ROW`` beside a row that is no
        experience."""
        place = _place_of_all(ring, row)
        task = task_bits(ring.kept(place, [law.task])[law.task])
        draw = jax.vmap(lambda index, task, key: index.draw(task, law.rows, key))
        found = draw(self.indices[law.task], task, keys)
        there = _place_of_all(ring, found)
        same = task_bits(ring.kept(there, [law.task])[law.task]) == task[..., None]
        stays = same & (found >= 0) & is_experience(ring, there)
        own = jnp.where((row >= 0) & is_experience(ring, place), row, NO_ROW)[..., None]
        return jnp.where(stays & (own >= 0), found, own)

    def shapes_with_capacity(self, rows: int) -> RingTasks:
        """Return the shapes and dtypes at a capacity of ``rows``."""
        seeds, names = next(iter(self.indices.values())).known.shape[0], list(self.indices)
        shapes: RingTasks = eqx.filter_eval_shape(self._empty, names, (seeds, rows, self.envs))
        return shapes

    def with_capacity(self, ring: Ring, rows: int) -> RingTasks:
        """Return the index after ``ring`` grows to a capacity of ``rows``: to be sorted anew."""
        return self._empty(list(self.indices), (ring.words.shape[0], rows, self.envs))


def is_experience(ring: Ring, place: Place) -> Array:
    """Whether rows are complete and not masked."""
    first, count = ring.span(1)
    return ring.mask(place) & (jnp.mod(place.row - first, ring.rows) < count)


def index_tasks(ring: Ring, name: str) -> TaskIndex:
    """Return every seed's rows in the order of their tasks, which the stored extra ``name`` tells
    apart."""
    seeds, rows, envs = ring.words.shape[:3]
    every = (jnp.arange(count, dtype=jnp.int32) for count in (seeds, rows, envs))
    place = Place(*jnp.meshgrid(*every, indexing="ij"))
    task, valid = ring.kept(place, [name])[name], is_experience(ring, place)
    return jax.vmap(TaskIndex.create)(task.reshape(seeds, -1), valid.reshape(seeds, -1))


def _place_of_all(ring: Ring, number: Int[Array, "seed ..."]) -> Place:
    """Return the places of rows of every seed by their numbers; of negative ones that of row 0."""
    return Place.of_all(*jnp.divmod(jnp.maximum(number, 0), ring.words.shape[2]))
