"""Data augmentation of pictures: random shifts, translations, crops and cutouts.

    shift       x'[i, j] = x[c(i + dy), c(j + dx)]     dy, dx ~ U{-p, ..., p}, or U(-p, p) sub-pixel
    translate   x'[i, j] = x[i + dy, j + dx], 0 outside               dy, dx ~ U{-p, ..., p}
    crop        x'[i, j] = x[t + i (h - 1) / (H - 1), l + j (w - 1) / (W - 1)]
                H - h = W - w = m,  m ~ U{0, ..., p},  t, l ~ U{0, ..., m}
    brighten    x'       = x (1 + s clip(e, -2, 2)),   e ~ N(0, 1)
    cutout      x'[i, j] = 0 for t <= i < t + h, l <= j < l + w
                h, w ~ U{low, ..., high},  t ~ U{0, ..., H - h},  l ~ U{0, ..., W - w}

c clips to the picture: its edges are repeated. Between pixels x is bilinear. ``shift`` is DrQ's
(Kostrikov 2020, arXiv:2004.13649, section 3.1), with fractions of pixels DrQ-v2's (Yarats 2021,
arXiv:2107.09645, section 3.1). ``brighten`` is SPR's (Schwarzer 2021, arXiv:2007.05929, appendix
D). The others are RAD's (Laskin 2020, arXiv:2004.14990, section 4.1),
with pictures that keep their size: RAD translates in a larger black picture, and its crops are
smaller than what is observed (84 of 100 pixels, the middle ones where it acts). Here a crop is
enlarged, and by chance it is the whole picture, as it is where the agent acts.

Each row of a batch has draws of its own, one for its observation and one for the next observation.
All frames and channels of a stack share a draw, and so do all pictures of an observation. The steps
of a sequence share one draw too. The numbers keep their type: bytes are rounded to bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, Num, Shaped

from sterling import random_keys
from sterling.problem.picture_layout import PictureLayout, all_leaf_spaces, picture_layout
from sterling.types import Mistake, Obs, Record, Spec

# changes pictures ``(row, height, width, rest)``, each by a draw of its own from the key
PictureChange = Callable[[Array, Key[Array, ""]], Array]


@dataclasses.dataclass(frozen=True)
class Shift:
    """Moves pictures by up to ``pixels`` up or down and left or right, with repeated edges; with
    ``subpixel`` by fractions of pixels too."""

    pixels: int = 4
    subpixel: bool = False

    def __post_init__(self) -> None:
        _check_least("shift", self.pixels, 0)

    def __call__(
        self, x: Num[Array, "row h w rest"], key: Key[Array, ""]
    ) -> Num[Array, "row h w rest"]:
        """Shift every picture by a draw of its own."""
        dy, dx = self.draw(key, len(x))
        _, height, width, _ = x.shape
        return resample(x, dy[:, None] + _sides(height, dy), dx[:, None] + _sides(width, dx))

    def draw(self, key: Key[Array, ""], rows: int) -> tuple[Num[Array, "row"], Num[Array, "row"]]:
        """Return dy and dx for each row, in pixels: integers, or with ``subpixel`` floats."""
        if self.subpixel:
            lot = jax.random.uniform(key, (2, rows), minval=-self.pixels, maxval=self.pixels)
        else:
            lot = jax.random.randint(key, (2, rows), -self.pixels, self.pixels + 1)
        return lot[0], lot[1]


@dataclasses.dataclass(frozen=True)
class Brighten:
    """Multiplies all numbers of a picture by 1 + ``scale`` e, e standard normal, clipped to
    [-2, 2]."""

    scale: float = 0.05

    def __call__(
        self, x: Num[Array, "row h w rest"], key: Key[Array, ""]
    ) -> Num[Array, "row h w rest"]:
        """Brighten or darken every picture by a draw of its own."""
        draw = jnp.clip(jax.random.normal(key, (len(x), 1, 1, 1)), -2.0, 2.0)
        made = x.astype(jnp.float32) * (1.0 + self.scale * draw)
        if jnp.issubdtype(x.dtype, jnp.integer):
            made = jnp.clip(jnp.round(made), 0.0, float(jnp.iinfo(x.dtype).max))
        return made.astype(x.dtype)


@dataclasses.dataclass(frozen=True)
class InTurn:
    """Applies one change after the other."""

    changes: tuple[PictureChange, ...]

    def __call__(
        self, x: Num[Array, "row h w rest"], key: Key[Array, ""]
    ) -> Num[Array, "row h w rest"]:
        """Change every picture by draws of its own."""
        for index, change in enumerate(self.changes):
            x = change(x, random_keys.fold(key, "change", index))
        return x


@dataclasses.dataclass(frozen=True)
class Translate:
    """Moves pictures by up to ``pixels`` up or down and left or right; what comes in is black."""

    pixels: int = 8

    def __post_init__(self) -> None:
        _check_least("translate", self.pixels, 0)

    def __call__(
        self, x: Num[Array, "row h w rest"], key: Key[Array, ""]
    ) -> Num[Array, "row h w rest"]:
        """Translate every picture by a draw of its own."""
        dy, dx = Shift(self.pixels).draw(key, len(x))
        _, height, width, _ = x.shape
        rows, columns = dy[:, None] + _sides(height, dy), dx[:, None] + _sides(width, dx)
        moved = resample(x, rows, columns)
        seen = _is_inside(rows, height)[:, :, None] & _is_inside(columns, width)[:, None, :]
        return jnp.where(seen[..., None], moved, jnp.zeros_like(moved))


@dataclasses.dataclass(frozen=True)
class Crop:
    """Enlarges a random part of each picture, whose sides are up to ``pixels`` shorter."""

    pixels: int = 16

    def __post_init__(self) -> None:
        _check_least("crop", self.pixels, 0)

    def __call__(
        self, x: Num[Array, "row h w rest"], key: Key[Array, ""]
    ) -> Num[Array, "row h w rest"]:
        """Crop every picture by a draw of its own."""
        _, height, width, _ = x.shape
        if min(height, width) < self.pixels + 2:
            raise Mistake(f"crop:{self.pixels} leaves nothing of {height}x{width}. Use less.")
        less, top, left = (each.astype(jnp.float32) for each in self.draw(key, len(x)))
        rows, columns = (
            start[:, None] + _sides(side, start) * ((side - 1 - less) / (side - 1))[:, None]
            for start, side in ((top, height), (left, width))
        )
        return resample(x, rows, columns)

    def draw(
        self, key: Key[Array, ""], rows: int
    ) -> tuple[Int[Array, "row"], Int[Array, "row"], Int[Array, "row"]]:
        """Return for each row by how many pixels its sides are shorter, the first row of pixels of
        the part, and its first column."""
        size_key, place_key = (random_keys.fold(key, name) for name in ("size", "place"))
        less = jax.random.randint(size_key, (rows,), 0, self.pixels + 1)
        most = jnp.broadcast_to(less, (2, rows))
        place = jax.random.randint(place_key, (2, rows), 0, most + 1)
        return less, place[0], place[1]


@dataclasses.dataclass(frozen=True)
class Cutout:
    """Blackens a rectangle of each picture, whose sides have ``low`` to ``high`` pixels."""

    low: int = 10
    high: int = 30

    def __post_init__(self) -> None:
        _check_least("cutout", self.low, 0)
        _check_least("cutout", self.high, self.low)

    def __call__(
        self, x: Num[Array, "row h w rest"], key: Key[Array, ""]
    ) -> Num[Array, "row h w rest"]:
        """Blacken a rectangle of every picture, by a draw of its own."""
        _, height, width, _ = x.shape
        if min(height, width) < self.high:
            asked = f"cutout:{self.low},{self.high}"
            raise Mistake(f"{asked} is larger than pictures of {height}x{width}. Use less.")
        first, end = self.draw(key, len(x), (height, width))
        rows, columns = (
            (_sides(side, start) >= start[:, None]) & (_sides(side, start) < stop[:, None])
            for start, stop, side in zip(first, end, (height, width), strict=True)
        )
        cut = rows[:, :, None] & columns[:, None, :]
        return jnp.where(cut[..., None], jnp.zeros_like(x), x)

    def draw(
        self, key: Key[Array, ""], rows: int, sides: tuple[int, int]
    ) -> tuple[Int[Array, "2 row"], Int[Array, "2 row"]]:
        """Return where the rectangles begin and end, vertically and horizontally."""
        size_key, place_key = (random_keys.fold(key, name) for name in ("size", "place"))
        size = jax.random.randint(size_key, (2, rows), self.low, self.high + 1)
        most = jnp.asarray(sides, jnp.int32)[:, None] - size
        first = jax.random.randint(place_key, (2, rows), 0, most + 1)
        return first, first + size


@dataclasses.dataclass(frozen=True)
class OnPictures:
    """Applies ``change`` to the pictures of a record's observations. ``layouts`` has an entry for
    each array of an observation, in the order of ``jax.tree.leaves``: None if it is no picture."""

    change: PictureChange
    layouts: tuple[PictureLayout | None, ...]

    def __call__(self, record: Record, key: Key[Array, ""]) -> Record:
        """Change the observations and, by draws of their own, the next observations."""
        next_key = key if record.mask.ndim > 1 else random_keys.fold(key, "next")
        obs = self.on_obs(record.obs, key)
        return dataclasses.replace(record, obs=obs, next_obs=self.on_obs(record.next_obs, next_key))

    def on_each_row(self, record: Record, key: Key[Array, ""]) -> Record:
        """Change the observations of sequences ``(batch, time, ...)``, and the next observations,
        each by a draw of its own."""
        lead = record.mask.shape

        def change(obs: Obs, name: str) -> Obs:
            rows = jax.tree.map(lambda x: x.reshape(record.mask.size, *x.shape[2:]), obs)
            rows = self.on_obs(rows, random_keys.fold(key, name))
            return jax.tree.map(lambda x: x.reshape(*lead, *x.shape[1:]), rows)

        obs, following = change(record.obs, "now"), change(record.next_obs, "next")
        return dataclasses.replace(record, obs=obs, next_obs=following)

    def on_obs(self, obs: Obs, key: Key[Array, ""]) -> Obs:
        """Change the pictures of observations whose first axis is the row."""
        leaves, structure = jax.tree.flatten(obs)
        changed = [
            x if layout is None else _change_leaf(self.change, x, layout, key)
            for x, layout in zip(leaves, self.layouts, strict=True)
        ]
        return jax.tree.unflatten(structure, changed)


def picture_layouts(spec: Spec) -> tuple[PictureLayout | None, ...]:
    """Return the layout of each array of an observation, None for those that are no picture. If
    nothing is one by the rule, but the user chose an encoder for pictures, shapes decide."""
    by_rule = tuple(picture_layout(leaf) for leaf in all_leaf_spaces(spec.obs))
    if any(by_rule) or not spec.encoder:
        return by_rule
    return tuple(picture_layout(leaf, by_shape=True) for leaf in all_leaf_spaces(spec.obs))


def on_pictures(change: PictureChange, spec: Spec, name: str) -> OnPictures:
    """Return ``change`` for a problem's pictures. Raises :class:`Mistake` if it has none."""
    layouts = picture_layouts(spec)
    if not any(layouts):
        raise Mistake(f"{name} changes pictures, and {spec.obs} has none. Use gaussian or uniform.")
    return OnPictures(change, layouts)


def resample(
    x: Num[Array, "row h w rest"], rows: Num[Array, "row h"], columns: Num[Array, "row w"]
) -> Num[Array, "row h w rest"]:
    """Return the pixels at these places: ``x[r, rows[r, i], columns[r, j]]``, with repeated edges,
    bilinear between pixels, in the type of ``x``."""
    made = _entries_at(_entries_at(x, rows, 1), columns, 2)
    if made.dtype == x.dtype:
        return made
    return (jnp.round(made) if jnp.issubdtype(x.dtype, jnp.integer) else made).astype(x.dtype)


def _entries_at(x: Num[Array, "row h w rest"], at: Num[Array, "row n"], axis: int) -> Array:
    """Return the entries of one axis at ``at``, whole numbers or fractions between two entries."""
    last = x.shape[axis] - 1

    def entries(index: Int[Array, "row n"]) -> Array:
        index = jnp.clip(index, 0, last)
        return jax.vmap(lambda one, i: jnp.take(one, i, axis - 1, mode="clip"))(x, index)

    if jnp.issubdtype(at.dtype, jnp.integer):
        return entries(at)
    below = jnp.floor(at)
    share = jnp.expand_dims(at - below, tuple(i for i in range(1, 4) if i != axis))
    low, high = (entries(below.astype(jnp.int32) + i).astype(jnp.float32) for i in (0, 1))
    return (1.0 - share) * low + share * high


def _change_leaf(
    change: PictureChange, x: Shaped[Array, "..."], layout: PictureLayout, key: Key[Array, ""]
) -> Shaped[Array, "..."]:
    """Change one array of pictures: the axes between row and sides, and behind, become the last."""
    down = x.ndim - len(layout.order) + layout.order.index("h")
    moved = jnp.moveaxis(x, (down, down + 1), (1, 2))
    changed = change(moved.reshape(*moved.shape[:3], -1), key)
    return jnp.moveaxis(changed.reshape(moved.shape), (1, 2), (down, down + 1))


def _sides(side: int, like: Array) -> Num[Array, "1 side"]:
    """Return the places along a side, as numbers of the type of ``like``."""
    return jnp.arange(side, dtype=like.dtype)[None, :]


def _is_inside(at: Int[Array, "row n"], side: int) -> Array:
    return (at >= 0) & (at < side)


def _check_least(name: str, pixels: int, least: int) -> None:
    if pixels < least:
        raise Mistake(f"{name}: pixels must be at least {least}, not {pixels}")
