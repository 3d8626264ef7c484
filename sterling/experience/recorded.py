"""Batches on disk: written as they are drawn, and drawn again, exactly or a few at a time.

One file for each draw, ``000000.safetensors`` and so on, which holds the record's arrays by name.
"""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from sterling import keys as named
from sterling.disk import replacing
from sterling.experience.draws import Ready, Still, Wrapped
from sterling.naming import hint
from sterling.types import Mistake, Record

PLAIN = ("obs", "action", "reward", "discount", "last", "mask")
HELD_OUT = "held_out"  # among the notes of a file


class Dump(Wrapped, eqx.Module):
    """A source whose every batch is written into a folder on its way."""

    source: Any
    drawn: Int[Array, ""]  # batches so far: the next one's number
    folder: Path = eqx.field(static=True)
    held_out: float = eqx.field(static=True, default=0.0)  # share of the questions not asked here

    @property
    def traced(self) -> bool:
        """Writing happens on the host."""
        return False

    def collect(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[Dump, Any]:
        """The source's batch, once it is written."""
        source, draws = self.source.collect(agent, keys)
        path = self.folder / f"{int(self.drawn):06d}.safetensors"
        write(path, draws.record, self.held_out)
        return dataclasses.replace(self, source=source, drawn=self.drawn + 1), draws

    def restored(self, fresh: Dump) -> Dump:
        """The inverse of :meth:`stored`."""
        source = self.source.restored(fresh.source)
        return dataclasses.replace(fresh, source=source, drawn=self.drawn)


class Recorded(Still, eqx.Module):
    """Draws a folder's batches in their order: learning from them again is the same learning."""

    drawn: Int[Array, ""]
    folder: Path = eqx.field(static=True)

    @classmethod
    def of(cls, folder: Path, count: int) -> Recorded:
        """A folder's batches from the first; Mistake where it holds fewer than ``count``: a run
        would find that out at its end."""
        _exists(folder)
        held = len(list(folder.glob("*.safetensors")))
        if held < count:
            said = f"{folder} holds {held} batches, and these updates take {count}"
            raise Mistake(f"{said}; ask for fewer updates")
        return cls(jnp.zeros((), jnp.int32), folder)

    @property
    def traced(self) -> bool:
        """Files are read on the host."""
        return False

    def collect(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[Recorded, Ready]:
        """The next batch; Mistake where the folder has no more, or was written by other seeds."""
        batch = read(self.folder / f"{int(self.drawn):06d}.safetensors")
        if len(batch.mask) != len(keys):
            raise Mistake(
                f"{self.folder} was written by {len(batch.mask)} seeds; learn with as many"
            )
        return Recorded(self.drawn + 1, self.folder), Ready(batch)

    def stored(self) -> Recorded:
        """How far it was read."""
        return self

    def restored(self, fresh: Recorded) -> Recorded:
        """From the folder as it is now."""
        return Recorded(self.drawn, fresh.folder)


class Remembered(Still, eqx.Module):
    """Draws groups of a folder's answers in which some were right (RLEP, arXiv:2507.07451).

    Every seed draws from all seeds' groups; ``count`` groups of ``group`` rows each.
    """

    groups: Record | None  # (group, row, token); None while a run is written
    count: int = eqx.field(static=True)
    seats: int = eqx.field(static=True)  # whose lines are groups of their own

    @classmethod
    def of(cls, folder: Path, count: int, group: int, seats: int, tokens: int) -> Remembered:
        """Groups of a dump, ``group`` lines of each seat, for a run of lines of ``tokens``.

        Mistake where no answer in it was right, where its groups are of another size, and where its
        lines are longer.
        """
        found = []
        _exists(folder)
        for path in sorted(folder.glob("*.safetensors")):
            batch = _lengthened(jax.tree.map(np.asarray, read(path)), tokens, folder)
            index = _questions(batch, group, seats, folder)
            parts = jax.tree.map(lambda x, index=index: x[index], batch)
            parts.extras["group"] = parts.extras["group"] % seats
            solved = ((parts.extras["score"] >= 1.0) & parts.extras["valid"]).any(1)
            found.append(jax.tree.map(lambda x, solved=solved: x[solved], parts))
        if not found or not sum(part.mask.shape[0] for part in found):
            raise Mistake(
                f"{folder} holds no group with a right answer; dump a run that finds some"
            )
        whole = jax.tree.map(lambda *x: jnp.asarray(np.concatenate(x)), *found)
        return cls(whole, count, seats)

    @property
    def traced(self) -> bool:
        """Everything is on the device."""
        return True

    @property
    def rows(self) -> int:
        """Rows of a batch."""
        assert self.groups is not None
        return self.count * self.groups.mask.shape[1]

    def collect(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[Remembered, Ready]:
        """``count`` groups for every seed, ``(seed, row, token)``."""
        groups = self.groups
        assert groups is not None  # only while a run is written

        def one(key: Key[Array, ""]) -> Record:
            index = jax.random.randint(key, (self.count,), 0, groups.mask.shape[0], jnp.int32)
            drawn = jax.tree.map(lambda x: x[index].reshape(-1, *x.shape[2:]), groups)
            rows = groups.mask.shape[1]
            number = jnp.arange(drawn.mask.shape[0], dtype=jnp.int32) // rows * self.seats
            group = number + drawn.extras["group"]
            return dataclasses.replace(drawn, extras={**drawn.extras, "group": group})

        return self, Ready(jax.vmap(one)(named.fold_each(keys, "remember")))

    def stored(self) -> Remembered:
        """Nothing of it is written."""
        return Remembered(None, self.count, self.seats)

    def restored(self, fresh: Remembered) -> Remembered:
        """The folder's content again."""
        return fresh


def _questions(batch: Record, group: int, seats: int, folder: Path) -> tuple[Any, Any]:
    """Seed and rows of every question whose lines are all there; Mistake where all are of groups of
    another size."""
    number, seeds, rows, sizes = batch.extras["group"], [], [], set()
    blank = ~batch.extras["valid"] & (number == number.shape[1] - 1)  # what fills a batch up
    for seed, own in enumerate(np.where(blank, -1, number) // seats):
        for question in np.unique(own[own >= 0]):
            index = np.flatnonzero(own == question)
            sizes.add(len(index))
            if len(index) == group * seats:
                seeds.append(np.full(len(index), seed))
                rows.append(index)
    if sizes and not rows:
        raise Mistake(
            f"{folder} has groups of {max(sizes) // seats} answers, not of {group}; say as many"
        )
    width = group * seats
    return np.reshape(seeds, (-1, width)).astype(int), np.reshape(rows, (-1, width)).astype(int)


def _lengthened(batch: Record, tokens: int, folder: Path) -> Record:
    """Lines with nothing behind them, up to ``tokens``."""
    own = batch.mask.shape[-1]
    if own > tokens:
        raise Mistake(f"lines of {folder} have {own + 1} tokens; give context={own + 1} or more")

    def longer(x: Any) -> Any:
        return np.pad(x, ((0, 0), (0, 0), (0, tokens - own))) if x.ndim == 3 else x

    return jax.tree.map(longer, batch)


def held_out(folder: Path) -> float:
    """The share of all questions that the run which wrote a folder kept to judge by; 0 where it
    does not say."""
    for path in sorted(folder.glob("*.safetensors"))[:1]:
        with contextlib.suppress(SafetensorError), safe_open(path, "numpy") as file:
            return float((file.metadata() or {}).get(HELD_OUT, 0.0))
    return 0.0


def write(path: Path, batch: Record, held_out: float = 0.0) -> None:
    """Write a batch, whole or not at all."""
    arrays = {name: np.asarray(getattr(batch, name)) for name in PLAIN}
    arrays |= {f"extras.{name}": np.asarray(x) for name, x in batch.extras.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        save_file(arrays, partial, {HELD_OUT: repr(held_out)})


def _exists(folder: Path) -> None:
    if not folder.is_dir():
        near = hint(folder.name, [each.name for each in folder.absolute().parent.glob("*/")])
        raise Mistake(f"there is no folder {folder}{near}")


def read(path: Path) -> Record:
    """A batch from its file; Mistake where it is missing or damaged."""
    _exists(path.parent)
    if not path.is_file():
        raise Mistake(f"{path.parent} has no batch {path.name}; ask for fewer updates")
    try:
        arrays = load_file(path)
    except SafetensorError as error:
        raise Mistake(f"{path} is damaged ({error}); dump the run again") from error
    missing = [name for name in PLAIN if name not in arrays]
    if missing:
        raise Mistake(f"{path} is no batch: it lacks {', '.join(missing)}")
    extras = {
        name.removeprefix("extras."): jnp.asarray(x)
        for name, x in arrays.items()
        if name.startswith("extras.")
    }
    if "cut" not in extras:  # batches written before it was told apart from the discount
        ends = arrays["last"] & (arrays["discount"] > 0.0)
        extras["cut"] = jnp.asarray(ends.any(-1))
    whole: dict[str, Any] = {name: jnp.asarray(arrays[name]) for name in PLAIN}
    return Record(next_obs=None, extras=extras, **whole)
