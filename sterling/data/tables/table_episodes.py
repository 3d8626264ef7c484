"""Split the rows of a table into episodes: their order, their ends, and rows that are incomplete.

A row is an observation, the action taken there, and the reward that followed. The next row's
observation is its successor. So the last row of an episode has no successor, unless the table has
a column for it: see ``sterling/data/formats/flat_arrays.py`` for what becomes of it. A row with an
observation only, at an episode's end, is the successor of the row before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Int

from sterling.data.episode_columns import BLOCK_ROWS
from sterling.data.formats.flat_arrays import numbers_differ
from sterling.data.tables.table_layout import TableLayout
from sterling.data.tables.table_matrix import CODE, Matrix
from sterling.types import Mistake


@dataclasses.dataclass
class EpisodeRows:
    """Rows in the order of episodes and time. Arrays have one entry per row."""

    rows: Int[np.ndarray, "row"]  # their numbers in the matrix
    last: Bool[np.ndarray, "row"]  # the last row of an episode
    ended: Bool[np.ndarray, "row"]  # the episode terminated in this row
    bare: Bool[np.ndarray, "row"]  # only the observation counts: the successor of the row before
    notes: list[str]


def split_episodes(matrix: Matrix, layout: TableLayout) -> EpisodeRows:
    """Return the rows in order, and where episodes end. Raises Mistake for missing entries, unless
    ``layout.drop_incomplete``."""
    rows, notes = _ordered_rows(matrix)
    last, terminal, natural = _ends(matrix, layout, rows)
    seen, whole, empty = _complete_rows(matrix, rows)
    bare = seen & empty & last
    broken = ~((seen & whole) | bare)
    if broken.any():
        if not layout.drop_incomplete:
            _refuse(matrix, rows, int(np.argmax(broken)), int(broken.sum()))
        kept = f"{int(broken.sum())} rows with missing entries are left out (--drop-incomplete)"
        notes.append(f"{kept}; episodes are split there")
    if bare.any():
        notes.append(f"the last row of {int(bare.sum())} episodes holds an observation only")
    if layout.terminal_at_end:
        terminal = natural & ~broken
    passed_on = np.roll(bare & terminal, -1) & ~last  # the row before an observation only
    terminal = (terminal & ~bare & ~broken) | passed_on
    bare, last = bare | (broken & seen), last | broken | np.roll(broken & ~seen, -1)
    if matrix.columns.next_obs:  # every other row has its successor
        last, kept_rows = last | np.roll(bare, -1), ~bare & seen & ~broken
        made = EpisodeRows(rows[kept_rows], last[kept_rows], terminal[kept_rows],
                           bare[kept_rows], notes)  # fmt: skip
        _end_at_unrecorded_resets(matrix, made)
    else:
        made = EpisodeRows(rows[seen], last[seen], terminal[seen], bare[seen], notes)
    if not len(made.rows):
        raise Mistake(f"{matrix.names[0]} has no complete row. Fill in its empty cells.")
    made.last[-1] = True
    return made


def _ordered_rows(matrix: Matrix) -> tuple[Int[np.ndarray, "row"], list[str]]:
    """Return row numbers sorted by episode and time, and notes on what that changed."""
    code, notes = matrix.column(CODE), []
    parts = int((np.diff(code) != 0).sum()) + 1
    if parts > (several := len(np.unique(code))):
        notes.append(
            f"the rows of some episodes are apart: {parts} pieces are put together to {several}"
        )
    if not matrix.columns.time:
        return np.argsort(code, kind="stable"), notes
    time = matrix.column(matrix.columns.time)
    if (unknown := ~np.isfinite(time)).any():
        row = int(np.argmax(unknown))
        name = matrix.columns.time
        raise Mistake(f"{matrix.place_name(row)}: column {name!r} is empty. Fill in the time.")
    rows = np.lexsort((time, code))
    again = (np.diff(time[rows]) == 0) & (np.diff(code[rows]) == 0)
    if again.any():
        notes.append(
            f"{int(again.sum())} rows have the same time as the row before in their episode"
        )
    return rows, notes


def _ends(
    matrix: Matrix, layout: TableLayout, rows: Int[np.ndarray, "row"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return masks of the last rows of episodes, of rows in which one terminated, and of last rows
    that are no timeouts."""
    columns = matrix.columns
    natural = np.append(np.diff(matrix.column(CODE)[rows]) != 0, True)
    if layout.gap is not None:
        pause = np.diff(matrix.column(columns.time)[rows]) > layout.gap
        natural[:-1] |= pause
    terminal, timeout = (_flags(matrix, name, rows) for name in (columns.terminal, columns.timeout))
    if not (columns.episode or layout.gap is not None or layout.one_episode):
        natural |= terminal
    return natural | timeout, terminal, natural & ~timeout


def _flags(matrix: Matrix, name: str, rows: np.ndarray) -> Bool[np.ndarray, "row"]:
    if not name:
        return np.zeros(len(rows), bool)
    flags = matrix.column(name)[rows]
    wrong = ~np.isin(flags, (0.0, 1.0)) & ~np.isnan(flags)
    if wrong.any():
        at = int(np.argmax(wrong))
        place = matrix.place_name(int(rows[at]))
        raise Mistake(f"{place}: column {name!r} holds {flags[at]:g}; a flag is 0 or 1.")
    return flags == 1.0


def _complete_rows(
    matrix: Matrix, rows: Int[np.ndarray, "row"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return masks of rows whose observation is complete, of rows whose other entries are, and of
    rows in which all other entries are missing."""
    columns = matrix.columns
    obs = matrix.wide(columns.obs)
    single = [name for name in (columns.reward,) if name]
    step = matrix.wide([*columns.action, *single])
    flags = [name for name in (columns.terminal, columns.timeout) if name]
    rest = matrix.wide([*columns.next_obs, *columns.extra, *flags])
    seen, whole, empty = (np.zeros(len(rows), bool) for _ in range(3))
    for low in range(0, len(rows), BLOCK_ROWS):
        part = slice(low, low + BLOCK_ROWS)
        values = np.asarray(matrix.values[rows[part]])
        seen[part] = np.isfinite(values[:, obs]).all(1)
        whole[part] = np.isfinite(values[:, np.concatenate([step, rest])]).all(1)
        empty[part] = np.isnan(values[:, step]).all(1)
    return seen, whole, empty


def _refuse(matrix: Matrix, rows: np.ndarray, at: int, count: int) -> None:
    """Raise Mistake that names the first incomplete row, its column, and how many there are."""
    row, columns = int(rows[at]), matrix.columns
    names = [*columns.obs, *columns.next_obs, *columns.action, *columns.extra]
    names += [name for name in (columns.reward, columns.terminal, columns.timeout) if name]
    wrong = next(
        name for name in names if not np.isfinite(matrix.values[row, matrix.places[name]]).all()
    )
    value = matrix.values[row, matrix.places[wrong]]
    what = "is infinite" if np.isinf(value).any() else "is empty"
    more = f"; {count - 1} more rows are incomplete" if count > 1 else ""
    raise Mistake(
        f"{matrix.place_name(row)}: column {wrong!r} {what}{more}. Fill them in, or leave such "
        "rows out with --drop-incomplete"
    )


def _end_at_unrecorded_resets(matrix: Matrix, made: EpisodeRows) -> None:
    """End an episode where the successor of a row is not the next row's observation."""
    obs, following = matrix.wide(matrix.columns.obs), matrix.wide(matrix.columns.next_obs)
    found = 0
    for low in range(0, len(made.rows) - 1, BLOCK_ROWS):
        high = min(low + BLOCK_ROWS, len(made.rows) - 1)
        here = np.asarray(matrix.values[made.rows[low:high]])[:, following]
        there = np.asarray(matrix.values[made.rows[low + 1 : high + 1]])[:, obs]
        reset = numbers_differ(here, there).any(1) & ~made.last[low:high]
        made.last[low:high] |= reset
        found += int(reset.sum())
    if found:
        made.notes.append(
            f"in {found} rows the successor is not the next row's observation; episodes end there"
        )


def row_blocks(made: EpisodeRows) -> Iterator[slice]:
    """Yield successive whole episodes, about ``BLOCK_ROWS`` rows at a time."""
    stops, low = np.flatnonzero(made.last) + 1, 0
    while low < len(made.rows):
        first, until = np.searchsorted(stops, [low, low + BLOCK_ROWS], "right")
        stop = int(stops[max(first, until - 1)])
        yield slice(low, stop)
        low = stop
