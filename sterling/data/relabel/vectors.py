"""Observations and actions as one vector a row, and datasets with some columns replaced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from sterling.data import spaces
from sterling.data.columns import Arrays, Block, joined
from sterling.data.dataset import Dataset
from sterling.data.facts import Facts
from sterling.nets.encoder import Encoder
from sterling.types import AnyArray, Mistake


class Vectors:
    """One vector for each observation or action of a space: numbers flattened, choices one-hot."""

    def __init__(self, space: Any, what: str):
        self._what = what
        self._encoder = Encoder.create(jax.random.key(0), space)
        if not self._encoder.is_flat:
            raise Mistake("pictures cannot be compared number by number; log features of them")
        self.size = self._encoder.size

    def __call__(self, values: Any) -> Float[np.ndarray, "row n"]:
        """The vectors of rows; raises Mistake where they hold NaN or infinity."""
        made: np.ndarray = np.asarray(self._encoder(values), np.float32)
        if not np.isfinite(made).all():
            raise Mistake(
                f"some {self._what} are NaN or infinite; sterling data check FILE --fix OUT first"
            )
        return made


class Scale:
    """Zero mean and unit deviation, by the moments of a sample; what never varies is centred."""

    def __init__(self, sample: Float[AnyArray, "row n"]):
        # the middle of what varies little around a large number is lost in 32 bits
        wide = np.asarray(sample, np.float64)
        deviation = wide.std(0)
        tiny = deviation <= 1e-6 * np.maximum(np.abs(wide).max(0), 1e-6)
        self.centre = wide.mean(0).astype(np.float32)
        self.width = np.where(tiny, 1.0, deviation).astype(np.float32)

    def __call__(self, vectors: Float[np.ndarray, "row n"]) -> Float[np.ndarray, "row n"]:
        """In units of the deviation."""
        return (vectors - self.centre) / self.width


def rows_of(dataset: Dataset, what: str) -> None:
    """Raises Mistake for a dataset that has no rows, or does not fit into memory."""
    if not dataset.rows:
        raise Mistake(f"the {what} are empty; give at least one episode with a step")
    if dataset.mapped:
        size = f"{dataset.bytes / 1e9:.1f} GB"
        raise Mistake(f"the {what} are larger than memory ({size}); use some episodes at a time")


def alike(one: Any, other: Any, kind: str, what: str) -> None:
    """Raises Mistake where two spaces hold different values; bounds of boxes may differ."""
    own, its = spaces.parts(kind, one), spaces.parts(kind, other)
    same = list(own) == list(its) and all(
        type(own[name]) is type(its[name])
        and (
            own[name] == its[name] if _is_choice(own[name]) else own[name].shape == its[name].shape
        )
        for name in own
    )
    if not same:
        raise Mistake(f"the {what} have {one} and {other}; both files must be of one environment")


def _is_choice(space: Any) -> bool:
    return not hasattr(space, "low")


def rewritten(
    dataset: Dataset,
    action_space: Any,
    facts: Facts,
    change: Callable[[Block, slice], Arrays],
    without: Sequence[str] = (),
) -> Dataset:
    """The dataset with the columns that ``change`` gives for a block of its rows, and ``without``
    some; columns of actions that it does not give are dropped where ``action_space`` has other
    names."""
    made, begin = list[Block](), 0
    had, has = (spaces.parts("action", one) for one in (dataset.action_space, action_space))
    left = {*had} - {*has} | {*without}
    for block in dataset.blocks():
        fresh = change(block, slice(begin, begin + block.rows))
        kept = {name: array for name, array in block.arrays.items() if name not in left}
        made.append(dataclasses.replace(block, arrays={**kept, **fresh}))
        begin += block.rows
    return Dataset.of(joined(made), dataset.obs_space, action_space, facts)
