"""The columns of a log beside observations, actions, rewards and discounts: which of them batches
have, as ``extras``, and which stand for what a world reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, UInt32

from sterling.data.dataset import Dataset
from sterling.experience.replay.kept_extras import TOTAL
from sterling.experience.rollouts.episode_totals import STANDARD_CHANNELS
from sterling.experience.task_index import TaskIndex, task_bits
from sterling.problem.channels import NAME_PATTERN, RESERVED_COLUMNS, Channel
from sterling.types import Mistake, Record

EXTRA = "extra/"  # before the names of these columns
OF_ACTIONS = ("log_prob", "chosen", "sample")  # what an actor recorded: data/recorded_actions.py


class KeptColumn(NamedTuple):
    """A column that batches have, by its name there."""

    name: str
    channel: bool = False  # whether it holds what the world reports, as float32
    summed: bool = False  # whether n-step windows sum it, as they do rewards

    def values_in(self, rows: Record) -> Array:
        """Return its values in rows of the log."""
        values = rows.extras[self.name]
        return values.astype(jnp.float32) if self.channel else values


def column_channels(dataset: Dataset) -> dict[str, Channel]:
    """Return the channels of a log that names no environment: all columns of one number a row, or
    of a vector, whose parts are then called 0, 1, ... Nothing says how an episode's numbers reduce
    to one, so they are summed."""
    block, found = next(dataset.blocks(1)), {}
    for name in _extras(dataset):
        x = block.arrays[EXTRA + name]
        named = NAME_PATTERN.fullmatch(name) and name not in (*OF_ACTIONS, *RESERVED_COLUMNS)
        if named and x.ndim <= 2 and x.dtype.kind in "biuf":
            found[name] = Channel(tuple(map(str, range(*x.shape[1:]))) if x.ndim == 2 else ())
    return found


def kept_columns(
    dataset: Dataset, names: tuple[str, ...], channels: Mapping[str, Channel]
) -> tuple[KeptColumn, ...]:
    """Return the columns that the ``names`` of ``Needs.keep`` stand for; ``channels`` are those of
    the problem. Raise Mistake if the log lacks one, or has it in another shape than the world."""
    _check_kept(dataset, [name for name in names if not _is_total(dataset, name)], channels)
    summed = [name for name in names if name in channels and channels[name].reduce == "sum"]
    return tuple(KeptColumn(name, name in channels, name in summed) for name in names)


def _check_kept(dataset: Dataset, names: list[str], channels: Mapping[str, Channel]) -> None:
    check_columns(dataset, tuple(names), "keep names")
    block = next(dataset.blocks(1))
    for name in names:
        shape = block.arrays[EXTRA + name].shape[1:]
        if name in channels and shape != channels[name].shape:
            raise Mistake(
                f"the log's column {EXTRA + name!r} has numbers of shape {shape} in a row, and the "
                f"world reports {name!r} of shape {channels[name].shape}. Correct the log, or give "
                "the environment that it is of."
            )


def kept_totals(
    dataset: Dataset, names: tuple[str, ...], channels: Mapping[str, Channel]
) -> dict[str, Array]:
    """Return what the names ``episode/NAME`` of ``Needs.keep`` stand for, where the log has no
    column of this name: for every row the value of a channel, or of ``return`` or ``length``, for
    the episode up to and including the row, as rollouts report it. Raise Mistake for other names,
    and for a channel of which the log has no column."""
    made, known = {}, STANDARD_CHANNELS | dict(channels)
    for name in names:
        if not _is_total(dataset, name):
            continue
        own = name.removeprefix(TOTAL)
        if own not in known:
            raise Mistake(
                f"keep names {name!r}, but {own!r} is no channel; of an episode there are "
                f"{', '.join(known)}. Use one of those."
            )
        if own in channels:
            _check_kept(dataset, [own], channels)
        made[name] = jnp.asarray(_totals(dataset, own, known[own].reduce))
    return made


def _is_total(dataset: Dataset, name: str) -> bool:
    return name.startswith(TOTAL) and name not in _extras(dataset)


def _totals(dataset: Dataset, name: str, reduce: str) -> np.ndarray:
    """Return each row's value for its episode so far."""
    found = []
    for block in dataset.blocks():
        if name == "length":
            steps = np.ones(int(block.lengths.sum()), np.int32)
        else:
            steps = block.arrays["reward" if name == "return" else EXTRA + name].astype(np.float64)
        parts = np.split(steps, np.cumsum(block.lengths)[:-1])
        found += [_so_far(part, reduce) for part in parts]
    total = np.concatenate(found)
    return total.astype(np.int32 if name == "length" else np.float32)


def _so_far(steps: np.ndarray, reduce: str) -> np.ndarray:
    if reduce == "last":
        return steps
    if reduce == "max":
        return np.maximum.accumulate(steps)
    total = steps.cumsum(0)
    count = np.arange(1, len(steps) + 1).reshape(-1, *(1,) * (steps.ndim - 1))
    return total / count if reduce == "mean" else total


def check_columns(dataset: Dataset, names: tuple[str, ...], who: str) -> None:
    """Raise Mistake unless the log has columns of these names; ``who`` asks for them."""
    known = _extras(dataset)
    for name in names:
        if name not in known:
            there = ", ".join(EXTRA + each for each in known) or "no column beside its steps"
            raise Mistake(
                f"{who} {name!r}, but the log has no column {EXTRA + name!r}; it has {there}. Use "
                "one of those, or leave out data."
            )


def index_tasks(dataset: Dataset, name: str) -> tuple[TaskIndex, UInt32[Array, "row"]]:
    """Return the rows in the order of their tasks, which a column tells apart, and each row's task
    as bits."""
    check_columns(dataset, (name,), "rows of the same task are told apart by")
    task = np.concatenate([block.arrays[EXTRA + name] for block in dataset.blocks()])
    if task.ndim != 1:
        raise Mistake(f"{EXTRA + name!r} tells tasks apart, so it must be one number a row")
    # however wide tasks are
    number = jnp.asarray(np.unique(task, return_inverse=True)[1].astype(np.int32))
    return TaskIndex.create(number, jnp.ones(number.shape, bool)), task_bits(number)


def _extras(dataset: Dataset) -> list[str]:
    return [name.removeprefix(EXTRA) for name in dataset.columns if name.startswith(EXTRA)]
