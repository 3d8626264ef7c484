"""Turn observations and actions into one vector per row, and replace columns of a dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from sterling.data import space_json
from sterling.data.dataset import Dataset
from sterling.data.dataset_metadata import Facts
from sterling.data.episode_columns import Arrays, Block, join_blocks
from sterling.nets.obs_encoder import Encoder
from sterling.types import AnyArray, Mistake


class Vectoriser:
    """Encode observations or actions of a space as vectors: boxes flattened, discrete one-hot."""

    def __init__(self, space: Any, what: str):
        self._what = what
        self._encoder = Encoder.create(jax.random.key(0), space)
        if not self._encoder.is_flat:
            raise Mistake(
                f"The {what} contain pictures, which cannot be compared pixel by pixel. Use a "
                "dataset of features of them."
            )
        self.size = self._encoder.size

    def __call__(self, values: Any) -> Float[np.ndarray, "row n"]:
        """Return the vectors of rows; raise Mistake if they hold NaN or infinity."""
        made: np.ndarray = np.asarray(self._encoder(values), np.float32)
        if not np.isfinite(made).all():
            raise Mistake(
                f"Some {self._what} are NaN or infinite. Repair the dataset first: sterling data "
                "check FILE --fix OUT"
            )
        return made


class Standardiser:
    """Standardise vectors by the moments of a sample; components that never vary are centred."""

    def __init__(self, sample: Float[AnyArray, "row n"]):
        # in 32 bits the mean of numbers that vary little around a large one would be too coarse
        wide = np.asarray(sample, np.float64)
        deviation = wide.std(0)
        tiny = deviation <= 1e-6 * np.maximum(np.abs(wide).max(0), 1e-6)
        self.centre = wide.mean(0).astype(np.float32)
        self.width = np.where(tiny, 1.0, deviation).astype(np.float32)

    def __call__(self, vectors: Float[np.ndarray, "row n"]) -> Float[np.ndarray, "row n"]:
        """Return the vectors minus the mean, in units of the deviation."""
        return (vectors - self.centre) / self.width


def check_rows(dataset: Dataset, what: str) -> None:
    """Raise Mistake for a dataset that has no rows or does not fit into memory."""
    if not dataset.rows:
        raise Mistake(f"The {what} are empty. Give at least one episode with a step.")
    if dataset.mapped:
        size = f"{dataset.bytes / 1e9:.1f} GB"
        raise Mistake(f"The {what} are larger than memory ({size}). Label fewer at a time.")


def check_same_spaces(one: Any, other: Any, kind: str, what: str) -> None:
    """Raise Mistake if two spaces differ; only the bounds of boxes may."""
    own, its = space_json.column_spaces(kind, one), space_json.column_spaces(kind, other)
    same = list(own) == list(its) and all(
        type(own[name]) is type(its[name])
        and (
            own[name] == its[name]
            if _is_discrete(own[name])
            else own[name].shape == its[name].shape
        )
        for name in own
    )
    if not same:
        raise Mistake(
            f"The {what} have different spaces, {one} and {other}. Give files of one environment."
        )


def _is_discrete(space: Any) -> bool:
    return not hasattr(space, "low")


def replace_columns(
    dataset: Dataset,
    action_space: Any,
    facts: Facts,
    change: Callable[[Block, slice], Arrays],
    without: Sequence[str] = (),
) -> Dataset:
    """Return the dataset with the columns that ``change(block, rows)`` returns for each block of
    rows, and without the columns ``without``. Old action columns are dropped where ``action_space``
    has other names."""
    made, begin = list[Block](), 0
    had, has = (
        space_json.column_spaces("action", one) for one in (dataset.action_space, action_space)
    )
    left = {*had} - {*has} | {*without}
    for block in dataset.blocks():
        fresh = change(block, slice(begin, begin + block.rows))
        kept = {name: array for name, array in block.arrays.items() if name not in left}
        made.append(dataclasses.replace(block, arrays={**kept, **fresh}))
        begin += block.rows
    return Dataset.from_block(join_blocks(made), dataset.obs_space, action_space, facts)
