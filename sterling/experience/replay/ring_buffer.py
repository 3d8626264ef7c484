"""A ring buffer of rows, packed so that adding and reading cost a few operations.

Numbers are bit-cast into one array of 32-bit words, the arrays of a row side by side; large byte
arrays (pictures, grids) have their own. A row's next observation is not stored: it is that of the
row after it. The row at ``head``, overwritten next, holds the newest row's next observation alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt32

from sterling.experience.replay.ring_layout import (
    IMAGE_NDIM,
    MASK_WORD,
    SCALAR_WORDS,
    RowPart,
    from_words,
    lay_out,
    to_words,
)
from sterling.types import Action, Mistake, Obs, Record


class Place(NamedTuple):
    """The indices of rows: three arrays that broadcast to one shape."""

    seed: Int[Array, "..."]
    row: Int[Array, "..."]
    env: Int[Array, "..."]

    @classmethod
    def of_all(cls, row: Int[Array, "seed ..."], env: Int[Array, "seed ..."]) -> Place:
        """Create the indices of rows of every seed; the first axis is the seed."""
        seed = jnp.arange(row.shape[0], dtype=jnp.int32).reshape((-1,) + (1,) * (row.ndim - 1))
        return cls(seed, row, env)

    def at(self, row: Int[Array, "..."]) -> Place:
        """Return other rows of the same seeds and envs; further axes of ``row`` follow."""
        more = (1,) * (row.ndim - self.row.ndim)
        seed, env = (x.reshape(*x.shape, *more) if x.ndim else x for x in (self.seed, self.env))
        return Place(seed, row, env)

    def ahead(self, count: int, rows: int) -> Place:
        """Return the ``count`` rows from each row on, on a new last axis; the ring has ``rows``."""
        steps = jnp.arange(count, dtype=jnp.int32).reshape((1,) * self.row.ndim + (-1,))
        return self.at(jnp.mod(self.row[..., None] + steps, rows))


class Ring(eqx.Module):
    """The last ``rows`` rows of every env, for every seed; all seeds share one ``head``."""

    words: UInt32[Array, "seed rows env width"]
    wide: tuple[Shaped[Array, "seed rows env ..."], ...]
    head: Int[Array, ""]  # the row to be written next
    count: Int[Array, ""]  # rows written so far, at most ``rows``
    obs_parts: tuple[RowPart, ...] = eqx.field(static=True)
    action_parts: tuple[RowPart, ...] = eqx.field(static=True)
    structures: tuple[Any, Any] = eqx.field(static=True)  # of observation and action
    stack: int = eqx.field(static=True)
    kept_parts: tuple[RowPart, ...] = eqx.field(static=True, default=())
    kept_names: tuple[str, ...] = eqx.field(static=True, default=())
    summed: tuple[str, ...] = eqx.field(static=True, default=())  # extras, over a window's rows
    team: bool = eqx.field(static=True, default=False)  # whether several agents act in a row

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
        team: bool = False,
    ) -> Ring:
        """Create an empty ring for observations and actions like these, ``(seed, env, ...)``, and
        for the extras in ``kept``.

        With ``stack`` > 1 the pictures among the observations are ``stack`` frames on their first
        axis, newest last; only the newest frame is stored. If nothing is a picture, observations
        are stored whole. Raises :class:`Mistake` for pictures of which none is such a stack.
        """
        obs_leaves, obs_structure = jax.tree.flatten(obs)
        action_leaves, action_structure = jax.tree.flatten(action)
        seeds, envs = obs_leaves[0].shape[:2]
        stack = stack if any(len(leaf.shape) >= IMAGE_NDIM for leaf in obs_leaves) else 1
        obs_parts, width, wide = lay_out(obs_leaves, SCALAR_WORDS, 0, stack)
        action_parts, width, wide = lay_out(action_leaves, width, wide, 1)
        kept = dict(kept or {})
        kept_parts, width, _ = lay_out(list(kept.values()), width, wide, 1)
        if stack > 1 and all(part.frames == 1 for part in obs_parts):
            shapes = ", ".join(str(part.shape) for part in obs_parts)
            raise Mistake(
                f"no observation of shape {shapes} is a stack of {stack} frames; set stack=1"
            )
        own = [part for part in (*obs_parts, *action_parts, *kept_parts) if not part.packed]
        return cls(
            jnp.zeros((seeds, rows, envs, width), jnp.uint32),
            tuple(jnp.zeros((seeds, rows, envs, *part.stored_shape), part.dtype) for part in own),
            jnp.zeros((), jnp.int32),
            jnp.zeros((), jnp.int32),
            obs_parts,
            action_parts,
            (obs_structure, action_structure),
            stack,
            kept_parts,
            tuple(kept),
            summed,
            team,
        )

    @property
    def rows(self) -> int:
        """Return the capacity in rows."""
        return self.words.shape[1]

    def shapes_with_capacity(self, rows: int) -> Ring:
        """Return the ring's shapes and dtypes at a capacity of ``rows``."""
        return shapes_with_rows(self, rows)

    def with_capacity(self, rows: int) -> Ring:
        """Return the same rows in a ring of capacity ``rows``; not inside a compiled program."""
        torn = self.stack - 1 if int(self.count) == self.rows else 0  # rows with a broken stack
        return dataclasses.replace(
            self,
            words=self.oldest_first(self.words, rows),
            wide=tuple(self.oldest_first(x, rows) for x in self.wide),
            head=jnp.asarray(self.row_count, jnp.int32),
            count=jnp.asarray(self.row_count - torn, jnp.int32),
        )

    @property
    def row_count(self) -> int:
        """Return the number of complete rows."""
        return min(int(self.count), self.rows - 1)

    def oldest_first(
        self, x: Shaped[Array, "seed rows ..."], rows: int
    ) -> Shaped[Array, "seed _ ..."]:
        """Return an array of the ring, oldest row first, zero-padded to ``rows`` rows."""
        first = jnp.roll(x, self.row_count - int(self.head), 1)
        return jnp.pad(first, [(0, 0), (0, rows - self.rows)] + [(0, 0)] * (x.ndim - 2))

    def insert(self, record: Record) -> Ring:
        """Add the rows of a rollout ``(seed, time, env, ...)``, overwriting the oldest."""
        time = record.reward.shape[1]
        obs = jax.tree.map(
            lambda x, successor: jnp.concatenate([x, successor[:, -1:].astype(x.dtype)], 1),
            record.obs,
            record.next_obs,
        )
        kept = [record.extras[name] for name in self.kept_names]
        rest = (record.reward, record.discount, record.last, record.mask, record.action, kept)
        *scalars, action, kept = jax.tree.map(_append_zero_row, rest)  # masked, at the new head
        leaves = [*jax.tree.leaves(obs), *jax.tree.leaves(action), *kept]
        parts = (*self.obs_parts, *self.action_parts, *self.kept_parts)
        where = jnp.mod(self.head + jnp.arange(time + 1, dtype=jnp.int32), self.rows)
        packed = [x.astype(p.dtype) for x, p in zip(leaves, parts, strict=True) if p.packed]
        words = jnp.concatenate([to_words(x) for x in (*scalars, *packed)], -1)
        stored = [_newest_frames(x, p) for x, p in zip(leaves, parts, strict=True) if not p.packed]
        return dataclasses.replace(
            self,
            words=_write_rows(self.words, where, words),
            wide=tuple(
                _write_rows(old, where, new) for old, new in zip(self.wide, stored, strict=True)
            ),
            head=jnp.mod(self.head + time, self.rows),
            count=jnp.minimum(self.count + time, self.rows),
        )

    def boundary_row(self, obs: Obs) -> Record:
        """Return a masked row between the newest next observation and ``obs``, ``(seed, env,
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
        """Return the first row, and the number of rows, whose window of ``steps`` rows and frame
        stack are complete.

        The number may be negative: none.
        """
        full = self.count == self.rows
        available = jnp.minimum(self.count, self.rows - 1)  # the row at head is only half valid
        skip = jnp.where(full, self.stack - 1, 0)
        first = jnp.mod(self.head - available + skip, self.rows)
        return first, available - skip - (steps - 1)

    def scalars(
        self, place: Place
    ) -> tuple[Float[Array, "..."], Float[Array, "..."], Bool[Array, "..."], Bool[Array, "..."]]:
        """Return reward, discount, last and mask."""
        words = _gather(self.words, place, slice(0, SCALAR_WORDS))
        reward, discount = (from_words(words[..., i], "float32") for i in (0, 1))
        return reward, discount, words[..., 2] != 0, words[..., MASK_WORD] != 0

    def mask(self, place: Place) -> Bool[Array, "..."]:
        """Return the mask."""
        return _gather(self.words, place, MASK_WORD) != 0

    def obs(self, place: Place) -> Obs:
        """Return the observations, with frame stacks rebuilt."""
        return jax.tree.unflatten(self.structures[0], self._read(self.obs_parts, place))

    def action(self, place: Place) -> Action:
        """Return the actions."""
        return jax.tree.unflatten(self.structures[1], self._read(self.action_parts, place))

    def kept(self, place: Place, names: Collection[str] = ()) -> dict[str, Shaped[Array, "..."]]:
        """Return the stored extras by name, those of ``names`` (in the ring's order) or all."""
        every = dict(zip(self.kept_names, self.kept_parts, strict=True))
        parts = {name: every[name] for name in every if not names or name in names}
        return dict(zip(parts, self._read(tuple(parts.values()), place), strict=True))

    def _read(self, parts: tuple[RowPart, ...], place: Place) -> list[Array]:
        shape = jnp.broadcast_shapes(*(x.shape for x in place))
        packed = [part for part in parts if part.packed]
        if packed:
            start, stop = packed[0].offset, packed[-1].offset + packed[-1].words
            words = _gather(self.words, place, slice(start, stop))
        made = []
        for part in parts:
            if part.packed:
                own = words[..., part.offset - start : part.offset - start + part.words]
                made.append(from_words(own, part.dtype).reshape(*shape, *part.shape))
            elif part.frames > 1:
                made.append(self._frames(part, place).reshape(*shape, *part.shape))
            else:
                made.append(_gather(self.wide[part.offset], place))
        return made

    def _frames(self, part: RowPart, place: Place) -> Array:
        """Rebuild a row's frame stack; before an episode's first frame, that frame is repeated.

        An episode starts after a row that is masked, or that was never written.
        """
        row = place.row
        lags = jnp.arange(self.stack, dtype=jnp.int32).reshape((1,) * row.ndim + (-1,))
        before = jnp.mod(row[..., None] - lags, self.rows)
        same = jnp.cumprod(self.mask(place.at(before[..., 1:])).astype(jnp.int32), -1)
        depth = jnp.sum(same, -1, keepdims=True, dtype=jnp.int32)
        back = jnp.minimum(lags[..., ::-1], depth)
        return _gather(self.wide[part.offset], place.at(jnp.mod(row[..., None] - back, self.rows)))


def shapes_with_rows(tree: Any, rows: int) -> Any:
    """Return shapes and dtypes of a tree of ``(seed, rows, ...)`` arrays with other ``rows``."""

    def resized(x: Array) -> Any:
        shape = (x.shape[0], rows, *x.shape[2:]) if x.ndim else ()
        return jax.ShapeDtypeStruct(shape, x.dtype)

    return jax.tree.map(resized, tree)


def _newest_frames(x: Array, part: RowPart) -> Array:
    """Return what is stored of a wide block ``(seed, time, env, ...)``: of stacks the newest."""
    x = x.astype(part.dtype)
    return x[:, :, :, -part.stored_shape[0] :] if part.frames > 1 else x


def _append_zero_row(x: Array) -> Array:
    """Append one row of zeros to a block."""
    x = jnp.asarray(x)
    return jnp.concatenate([x, jnp.zeros_like(x[:, :1])], 1)


def _write_rows(old: Array, rows: Int[Array, "time"], new: Array) -> Array:
    return old.at[:, rows].set(new, mode="promise_in_bounds", unique_indices=True)


def _gather(array: Array, place: Place, words: Any = ...) -> Array:
    """Return ``array[seed, row, env, words]`` with one gather."""
    return array.at[place.seed, place.row, place.env, words].get(
        mode="promise_in_bounds", wrap_negative_indices=False
    )
