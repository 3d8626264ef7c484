"""A ring of rows, packed so that adding and reading cost a few operations.

Numbers are bit-cast into one array of 32-bit words, a row beside the other; wide arrays of bytes
(pictures, grids) keep arrays of their own. A row's successor is not stored: it is the observation
of the row after it. The row at ``head``, which is overwritten next, already holds the newest
successor as its observation and nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt32

from sterling.experience.row_layout import MASK, PICTURE, SCALARS, Part, lay_out
from sterling.types import Action, Mistake, Obs, Record


class Place(NamedTuple):
    """Where rows lie, arrays that broadcast to one shape."""

    seed: Int[Array, "..."]
    row: Int[Array, "..."]
    env: Int[Array, "..."]

    @classmethod
    def of_all(cls, row: Int[Array, "seed ..."], env: Int[Array, "seed ..."]) -> Place:
        """Rows of every seed, which is the first axis."""
        seed = jnp.arange(row.shape[0], dtype=jnp.int32).reshape((-1,) + (1,) * (row.ndim - 1))
        return cls(seed, row, env)

    def at(self, row: Int[Array, "..."]) -> Place:
        """Other rows of the same seeds and envs; more axes follow theirs."""
        more = (1,) * (row.ndim - self.row.ndim)
        seed, env = (x.reshape(*x.shape, *more) if x.ndim else x for x in (self.seed, self.env))
        return Place(seed, row, env)

    def ahead(self, count: int, rows: int) -> Place:
        """So many rows from each on, on one more axis, in a ring of ``rows``."""
        steps = jnp.arange(count, dtype=jnp.int32).reshape((1,) * self.row.ndim + (-1,))
        return self.at(jnp.mod(self.row[..., None] + steps, rows))


class Ring(eqx.Module):
    """The last ``rows`` rows of every env, for every seed; all seeds share one ``head``."""

    words: UInt32[Array, "seed rows env width"]
    wide: tuple[Shaped[Array, "seed rows env ..."], ...]
    head: Int[Array, ""]  # the row to be written next
    count: Int[Array, ""]  # rows written so far, at most ``rows``
    obs_parts: tuple[Part, ...] = eqx.field(static=True)
    action_parts: tuple[Part, ...] = eqx.field(static=True)
    structures: tuple[Any, Any] = eqx.field(static=True)  # of an observation, of an action
    stack: int = eqx.field(static=True)
    kept_parts: tuple[Part, ...] = eqx.field(static=True, default=())
    kept_names: tuple[str, ...] = eqx.field(static=True, default=())
    summed: tuple[str, ...] = eqx.field(static=True, default=())  # over a window's rows

    @classmethod
    def create(
        cls,
        rows: int,
        obs: Obs,
        action: Action,
        stack: int = 1,
        *,
        kept: Mapping[str, Array] | None = None,
        summed: tuple[str, ...] = (),
    ) -> Ring:
        """An empty ring for observations and actions like these, ``(seed, env, ...)``, and for
        ``kept``, what of a record's extras is kept by name.

        With ``stack`` > 1 the pictures among the observations are ``stack`` frames deep on their
        first axis, newest last; only the newest is kept. Where nothing is a picture observations
        are kept whole. Raises :class:`Mistake` for pictures of which none is such a stack.
        """
        obs_leaves, obs_structure = jax.tree.flatten(obs)
        action_leaves, action_structure = jax.tree.flatten(action)
        seeds, envs = obs_leaves[0].shape[:2]
        stack = stack if any(len(leaf.shape) == PICTURE for leaf in obs_leaves) else 1
        obs_parts, width, wide = lay_out(obs_leaves, SCALARS, 0, stack)
        action_parts, width, wide = lay_out(action_leaves, width, wide, 1)
        kept = dict(kept or {})
        kept_parts, width, _ = lay_out(list(kept.values()), width, wide, 1)
        if stack > 1 and all(part.frames == 1 for part in obs_parts):
            shapes = ", ".join(str(part.shape) for part in obs_parts)
            raise Mistake(f"no observation of shape {shapes} is a stack of {stack} frames; stack=1")
        own = [part for part in (*obs_parts, *action_parts, *kept_parts) if not part.packed]
        return cls(
            jnp.zeros((seeds, rows, envs, width), jnp.uint32),
            tuple(jnp.zeros((seeds, rows, envs, *part.stored), part.dtype) for part in own),
            jnp.zeros((), jnp.int32),
            jnp.zeros((), jnp.int32),
            obs_parts,
            action_parts,
            (obs_structure, action_structure),
            stack,
            kept_parts,
            tuple(kept),
            summed,
        )

    @property
    def rows(self) -> int:
        """Rows there is room for."""
        return self.words.shape[1]

    def shaped(self, rows: int) -> Ring:
        """Shapes and types of such a ring with room for ``rows``."""
        return with_rows(self, rows)

    def grown(self, rows: int) -> Ring:
        """The same rows, in a ring with room for ``rows``; not in a compiled program."""
        torn = self.stack - 1 if int(self.count) == self.rows else 0  # stacks, first frames lost
        return dataclasses.replace(
            self,
            words=self.moved(self.words, rows),
            wide=tuple(self.moved(x, rows) for x in self.wide),
            head=jnp.asarray(self.held, jnp.int32),
            count=jnp.asarray(self.held - torn, jnp.int32),
        )

    @property
    def held(self) -> int:
        """Whole rows that are here."""
        return min(int(self.count), self.rows - 1)

    def moved(self, x: Shaped[Array, "seed rows ..."], rows: int) -> Shaped[Array, "seed _ ..."]:
        """What is kept for each row, with the oldest row first and zeros up to ``rows``."""
        first = jnp.roll(x, self.held - int(self.head), 1)
        return jnp.pad(first, [(0, 0), (0, rows - self.rows)] + [(0, 0)] * (x.ndim - 2))

    def insert(self, record: Record) -> Ring:
        """Add the rows of a rollout ``(seed, time, env, ...)``, over the oldest."""
        time = record.reward.shape[1]
        obs = jax.tree.map(
            lambda x, successor: jnp.concatenate([x, successor[:, -1:].astype(x.dtype)], 1),
            record.obs,
            record.next_obs,
        )
        kept = [record.extras[name] for name in self.kept_names]
        rest = (record.reward, record.discount, record.last, record.mask, record.action, kept)
        *scalars, action, kept = jax.tree.map(_one_more, rest)  # the row after: no experience yet
        leaves = [*jax.tree.leaves(obs), *jax.tree.leaves(action), *kept]
        parts = (*self.obs_parts, *self.action_parts, *self.kept_parts)
        where = jnp.mod(self.head + jnp.arange(time + 1, dtype=jnp.int32), self.rows)
        packed = [x.astype(p.dtype) for x, p in zip(leaves, parts, strict=True) if p.packed]
        words = jnp.concatenate([_to_words(x) for x in (*scalars, *packed)], -1)
        stored = [_newest(x, p) for x, p in zip(leaves, parts, strict=True) if not p.packed]
        return dataclasses.replace(
            self,
            words=_put(self.words, where, words),
            wide=tuple(_put(old, where, new) for old, new in zip(self.wide, stored, strict=True)),
            head=jnp.mod(self.head + time, self.rows),
            count=jnp.minimum(self.count + time, self.rows),
        )

    def seam(self, obs: Obs) -> Record:
        """A row that is no experience, between the newest successor and ``obs``, ``(seed, env,
        ...)``, with which other episodes begin; to be inserted before they are."""
        seeds, _, envs, _ = self.words.shape
        row = jnp.broadcast_to(self.head, (seeds, envs))
        env = jnp.broadcast_to(jnp.arange(envs, dtype=jnp.int32), (seeds, envs))
        place = Place.of_all(row, env)
        newest, following = jax.tree.map(lambda x: x[:, None], (self.obs(place), obs))
        action = jax.tree.map(lambda x: jnp.zeros_like(x)[:, None], self.action(place))
        reward, no = jnp.zeros((seeds, 1, envs)), jnp.zeros((seeds, 1, envs), bool)
        kept = {name: jnp.zeros_like(x)[:, None] for name, x in self.kept(place).items()}
        return Record(newest, action, reward, jnp.ones_like(reward), following, no, no, kept)

    def span(self, steps: int) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """First row, and number of rows, whose window of ``steps`` rows and stack are all here.

        The number may be negative: none.
        """
        full = self.count == self.rows
        available = jnp.minimum(self.count, self.rows - 1)  # the row at head is half overwritten
        skip = jnp.where(full, self.stack - 1, 0)
        first = jnp.mod(self.head - available + skip, self.rows)
        return first, available - skip - (steps - 1)

    def scalars(
        self, place: Place
    ) -> tuple[Float[Array, "..."], Float[Array, "..."], Bool[Array, "..."], Bool[Array, "..."]]:
        """Reward, discount, last and mask."""
        words = _take(self.words, place, slice(0, SCALARS))
        reward, discount = (_from_words(words[..., i], "float32") for i in (0, 1))
        return reward, discount, words[..., 2] != 0, words[..., MASK] != 0

    def mask(self, place: Place) -> Bool[Array, "..."]:
        """Which rows are experience."""
        return _take(self.words, place, MASK) != 0

    def obs(self, place: Place) -> Obs:
        """Observations, stacks rebuilt."""
        return jax.tree.unflatten(self.structures[0], self._read(self.obs_parts, place))

    def action(self, place: Place) -> Action:
        """Actions."""
        return jax.tree.unflatten(self.structures[1], self._read(self.action_parts, place))

    def kept(self, place: Place) -> dict[str, Shaped[Array, "..."]]:
        """What is kept of the rows' extras, by name."""
        return dict(zip(self.kept_names, self._read(self.kept_parts, place), strict=True))

    def _read(self, parts: tuple[Part, ...], place: Place) -> list[Array]:
        shape = jnp.broadcast_shapes(*(x.shape for x in place))
        packed = [part for part in parts if part.packed]
        if packed:
            start, stop = packed[0].offset, packed[-1].offset + packed[-1].words
            words = _take(self.words, place, slice(start, stop))
        made = []
        for part in parts:
            if part.packed:
                own = words[..., part.offset - start : part.offset - start + part.words]
                made.append(_from_words(own, part.dtype).reshape(*shape, *part.shape))
            elif part.frames > 1:
                made.append(self._frames(part, place).reshape(*shape, *part.shape))
            else:
                made.append(_take(self.wide[part.offset], place))
        return made

    def _frames(self, part: Part, place: Place) -> Array:
        """The stack a row's picture belonged to; an episode's first frame is repeated before it.

        An episode starts after a row that is masked, or that was never written.
        """
        row = place.row
        lags = jnp.arange(self.stack, dtype=jnp.int32).reshape((1,) * row.ndim + (-1,))
        before = jnp.mod(row[..., None] - lags, self.rows)
        same = jnp.cumprod(self.mask(place.at(before[..., 1:])).astype(jnp.int32), -1)
        depth = jnp.sum(same, -1, keepdims=True, dtype=jnp.int32)
        back = jnp.minimum(lags[..., ::-1], depth)
        return _take(self.wide[part.offset], place.at(jnp.mod(row[..., None] - back, self.rows)))


def with_rows(tree: Any, rows: int) -> Any:
    """Shapes and types of a tree of ``(seed, rows, ...)`` and of scalars, with other ``rows``."""

    def resized(x: Array) -> Any:
        shape = (x.shape[0], rows, *x.shape[2:]) if x.ndim else ()
        return jax.ShapeDtypeStruct(shape, x.dtype)

    return jax.tree.map(resized, tree)


def _newest(x: Array, part: Part) -> Array:
    """What is stored of a block ``(seed, time, env, ...)`` of a wide part."""
    x = x.astype(part.dtype)
    return x[:, :, :, -part.stored[0] :] if part.frames > 1 else x


def _one_more(x: Array) -> Array:
    """A block with one row of zeros after it."""
    x = jnp.asarray(x)
    return jnp.concatenate([x, jnp.zeros_like(x[:, :1])], 1)


def _put(old: Array, rows: Int[Array, "time"], new: Array) -> Array:
    return old.at[:, rows].set(new, mode="promise_in_bounds", unique_indices=True)


def _take(array: Array, place: Place, words: Any = ...) -> Array:
    """``array[seed, row, env, words]``: one gather for all."""
    return array.at[place.seed, place.row, place.env, words].get(
        mode="promise_in_bounds", wrap_negative_indices=False
    )


def _to_words(x: Array) -> UInt32[Array, "seed time env words"]:
    """Four-byte numbers keep their bits; bytes and booleans their value."""
    x = x.reshape(*x.shape[:3], -1)
    if x.dtype.itemsize == 4:
        return jax.lax.bitcast_convert_type(x, jnp.uint32)
    return x.astype(jnp.int32).astype(jnp.uint32)


def _from_words(words: UInt32[Array, "..."], dtype: str) -> Array:
    if jnp.dtype(dtype).itemsize == 4:
        return jax.lax.bitcast_convert_type(words, jnp.dtype(dtype))
    return words.astype(jnp.int32).astype(dtype)
