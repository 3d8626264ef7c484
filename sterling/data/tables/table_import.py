"""Import tables of logged steps as a dataset: :func:`import_table`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.data.dataset import Dataset
from sterling.data.dataset_metadata import Facts, Source, check_reference_scores
from sterling.data.episode_columns import Block, Stream, join_blocks
from sterling.data.file_conversion import with_environment_spaces
from sterling.data.formats import check_destination, flat_arrays, sterling_format
from sterling.data.formats.env_spaces import environment_spaces
from sterling.data.tables.action_columns import (
    ActionColumn,
    convert_actions,
    find_action_columns,
)
from sterling.data.tables.table_episodes import EpisodeRows, row_blocks, split_episodes
from sterling.data.tables.table_files import open_table
from sterling.data.tables.table_layout import Names, TableLayout, resolve_columns
from sterling.data.tables.table_matrix import Matrix, read_matrix
from sterling.system.atomic_files import check_free_space, explain_write_errors
from sterling.types import Mistake

MAX_UNUSED_SHOWN = 12  # columns named in the note about those that are not read


def import_table(
    table: Any,
    out: str | Path | None = None,
    *,
    obs: Names,
    action: Names,
    environment: str = "",
    reference: tuple[float, float] | None = None,
    **how: Any,
) -> Dataset:
    """Make a dataset of a table in which every row is one step, and return it.

    >>> sterling.data.import_table(frame, "data/mine", obs=["a", "b"], action="u", reward="r",
    ...                            episode="id", terminal="done")

    A row holds an observation, the action taken there, and the reward that followed; the next row
    of the episode holds its successor. An episode's last row has no successor: where the episode
    terminated there, the row is kept; otherwise only its observation is. Tables may be larger than
    memory.

    Args:
        table: a CSV or Parquet file, a data frame (pandas, polars, Arrow), a dict of columns, or a
            list of these, which share columns but no episodes.
        out: folder to write, in Sterling's format; None: the dataset stays in memory.
        obs, action: columns, as a list or with commas; ``*`` matches any text. Columns of text
            among the observations become one number for each of their texts; among the actions
            they are choices.
        environment: an id known to Gymnasium, whose spaces replace the guessed ones.
        reference: the returns that count as 0 and as 1.
        **how: the other fields of :class:`~sterling.data.tables.table_layout.TableLayout`:
            ``reward`` (a column or a number), ``episode``, ``terminal``, ``timeout``, ``next_obs``,
            ``time``, ``gap``, ``discrete``, ``continuous``, ``extra``, ``terminal_at_end``,
            ``one_episode`` and ``drop_incomplete``.

    Raises Mistake for missing columns and entries, and where nothing says how episodes end.
    """
    check_reference_scores(reference)
    layout = TableLayout(obs, action, **how)
    out = None if out is None else Path(out).expanduser()
    if out is not None:
        check_destination(out)
    opened = [open_table(one) for one in (table if isinstance(table, list | tuple) else [table])]
    if not opened:
        raise Mistake("There is no table to import. Give at least one.")
    columns = resolve_columns(layout, opened[0].columns, opened[0].name)
    for one in opened[1:]:
        resolve_columns(layout, one.columns, one.name)  # raises if one lacks a column
    matrix = read_matrix(opened, columns, _existing_parent(out))
    made = TableEpisodes(matrix, split_episodes(matrix, layout), layout)
    sources = tuple(Source(one.name, one.format) for one in opened)
    found = made.stream(Facts(environment, reference, sources, labels=made.labels()))
    if environment:
        found = with_environment_spaces(found, environment_spaces(environment))
    if out is None:
        block = join_blocks(found.blocks)
        return Dataset.from_block(block, found.obs_space, found.action_space, found.facts)
    check_free_space(out, found.bytes)
    with explain_write_errors(out):
        sterling_format.write_blocks(
            found.obs_space, found.action_space, found.facts, found.blocks, out
        )
    return Dataset(out)


def _existing_parent(out: Path | None) -> Path | None:
    """Return the nearest folder above ``out`` that exists: the matrix lies on the same disk."""
    if out is None:
        return None
    return next(folder for folder in out.absolute().parents if folder.is_dir())


@dataclasses.dataclass
class TableEpisodes:
    """The episodes of tables, as blocks of a dataset."""

    matrix: Matrix
    rows: EpisodeRows
    layout: TableLayout

    def __post_init__(self) -> None:
        self._actions: list[ActionColumn]
        acted = self.rows.rows[~self.rows.bare]
        self._actions, self.action_space = find_action_columns(self.matrix, acted)
        width = len(self.obs_names())
        self.obs_space = spaces.Box(-np.inf, np.inf, (width,), np.float32)
        if not self._kept_rows():
            raise Mistake(
                "every episode has one row only, whose successor is unknown; name the columns of "
                "the successor with --next-obs, or those rows' ends with --terminal"
            )

    def stream(self, facts: Facts) -> Stream:
        """Return the episodes block by block; the facts get notes on what was assumed."""
        facts = flat_arrays.note_guessed_spaces(facts, self.action_space)
        facts = facts.with_notes(*self.rows.notes, *self._end_notes(), *self._unused_note())
        size = 4 * len(self.rows.rows) * (self.obs_space.shape[0] + 2 + len(self._actions))
        return Stream(self.obs_space, self.action_space, facts, self._blocks(), size)

    def obs_names(self) -> list[str]:
        """Return what each number of an observation is: columns, and "column=text"."""
        found: list[str] = []
        for name in self.matrix.columns.obs:
            reader = self.matrix.readers[name]
            if reader.categories is not None:
                found += [f"{name}={text}" for text in reader.categories.sorted_choices()[0]]
            elif reader.width > 1:
                found += [f"{name}[{at}]" for at in range(reader.width)]
            else:
                found.append(name)
        return found

    def labels(self) -> dict[str, list[str]]:
        """Return the names of all numbers of observations and actions, and of choices."""
        found = {"obs": self.obs_names()}
        if len(self._actions) > 1 or not self._actions[0].count:
            found["action"] = [one.name for one in self._actions]
        choices = {f"action={one.name}": list(one.choices) for one in self._actions if one.choices}
        return found | choices

    def _blocks(self) -> Iterator[Block]:
        for part in row_blocks(self.rows):
            block = self._block(part)
            if len(block.lengths):
                yield block

    def _block(self, part: slice) -> Block:
        matrix, columns = self.matrix, self.matrix.columns
        numbers, last = self.rows.rows[part], np.flatnonzero(self.rows.last[part])
        ended, bare = self.rows.ended[part], self.rows.bare[part]
        values = np.asarray(matrix.values[numbers])
        reward = np.full(len(values), columns.constant_reward)
        if columns.reward:
            reward = values[:, matrix.places[columns.reward]][:, 0]
        rows = {
            "action": convert_actions(self._actions, self.action_space, values),
            "reward": reward.astype(np.float32),
            "discount": np.where(ended, 0.0, 1.0).astype(np.float32),
        }
        for name in columns.extra:
            extra = values[:, matrix.places[name]].astype(np.float32)
            rows[f"extra/{name}"] = extra[:, 0] if extra.shape[1] == 1 else extra
        obs, real = self._observations(columns.obs, values), ended[last] & ~bare[last]
        if columns.next_obs:
            after = self._observations(columns.next_obs, values[last])
            seen = {"obs": np.insert(obs, last + 1, after, axis=0)}
            lengths = np.diff(last, prepend=-1).astype(np.int64)
            return Block({**seen, **rows}, lengths, matrix.tables[numbers[last]])
        made = flat_arrays.complete_episodes({"obs": obs}, rows, last, real)
        some = np.diff(last, prepend=-1) > ~real
        return dataclasses.replace(made, sources=matrix.tables[numbers[last[some]]])

    def _observations(self, names: Sequence[str], values: np.ndarray) -> np.ndarray:
        parts = []
        for name in names:
            found = values[:, self.matrix.places[name]]
            categories = self.matrix.readers[name].categories
            if categories is not None:
                choices, order = categories.sorted_choices()
                found = np.eye(len(choices))[order[found[:, 0].astype(np.int64)]]
            parts.append(found)
        return np.concatenate(parts, 1).astype(np.float32)

    def _kept_rows(self) -> int:
        """Return the number of rows that become steps."""
        if self.matrix.columns.next_obs:
            return len(self.rows.rows)
        real = self.rows.ended & ~self.rows.bare
        return len(self.rows.rows) - int((self.rows.last & ~real).sum())

    def _end_notes(self) -> Iterator[str]:
        """Yield notes on how episodes end, and on last rows."""
        last, layout = self.rows.last, self.layout
        real = (self.rows.ended & ~self.rows.bare)[last]
        if layout.terminal is None and not layout.terminal_at_end:
            yield (
                f"no column of terminations: all {int(last.sum())} episodes count as truncated; "
                "--terminal COLUMN or --terminal-at-end says otherwise"
            )
        if self.matrix.columns.next_obs:
            return
        if real.any():
            yield flat_arrays.COPIED_LAST_NOTE
        cut = int((last & ~self.rows.ended & ~self.rows.bare).sum())
        if cut:
            yield (
                f"the last rows of {cut} truncated episodes have no successor: their observations "
                "are kept, their actions and rewards are not; --next-obs names successors"
            )

    def _unused_note(self) -> Iterator[str]:
        unused = self.matrix.unused
        if unused:
            more = ", ..." if len(unused) > MAX_UNUSED_SHOWN else ""
            yield f"columns not read: {', '.join(unused[:MAX_UNUSED_SHOWN])}{more}"


def describe_labels(dataset: Dataset) -> list[str]:
    """Return lines on what the numbers of a dataset from a table are."""
    labels, space = dataset.facts.labels, dataset.action_space
    if not labels:
        return []
    lines = [f"observations: {len(labels['obs'])} numbers: {', '.join(labels['obs'])}"]
    if isinstance(space, spaces.Box):
        low, high = f"{np.min(space.low):g}", f"{np.max(space.high):g}"
        lines.append(f"actions: {', '.join(labels['action'])}: real numbers from {low} to {high}")
    elif isinstance(space, spaces.MultiDiscrete):
        counts = zip(labels["action"], space.nvec.tolist(), strict=True)
        lines.append("actions: " + ", ".join(f"{name} ({count} choices)" for name, count in counts))
    else:
        lines.append(f"actions: {int(getattr(space, 'n', 0))} choices")
    for key, choices in labels.items():
        if key.startswith("action="):
            numbered = ", ".join(f"{text}={at}" for at, text in enumerate(choices))
            lines.append(f"choices of {key.removeprefix('action=')}: {numbered}")
    return lines
