"""Scores against fixed, versioned references: never against the set that is being compared.

    (score - low) / (high - low)

A table in ``sterling/references/normalisation/<name>.json`` says for each task what counts as 0
and as 1, and where those numbers come from. Scaling by the best and worst of the compared
algorithms instead would let a newcomer change everyone's numbers.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sterling.statistics.scores import Given, Scores, scores_of
from sterling.types import Mistake

FOLDER = Path(__file__).parents[1] / "references" / "normalisation"
DECORATION = re.compile(
    r"^(ale|dm_control|dmc|minatar|mujoco|d4rl)[/:_]|(noframeskip|deterministic)?[-_]v\d+$"
    r"|[-_](misc|minatar)$",
    re.IGNORECASE,
)
SMALL = "minatar"  # in the name of a task, or of a table


@dataclasses.dataclass(frozen=True)
class Table:
    """References of some tasks."""

    name: str
    version: int
    source: str
    meaning: str  # what 0 and 1 stand for
    scores: Mapping[str, tuple[float, float]]  # task -> what counts as 0, and as 1
    anything: tuple[float, float] | None = None  # for every task not listed, if it has one scale
    endings: tuple[str, ...] = ()  # of data sets: what may follow a task's name

    @property
    def identity(self) -> str:
        """What is kept with normalised scores."""
        return f"{self.name}/{self.version}"

    def of(self, task: str) -> tuple[float, float]:
        """The references of a task; "Alien", "alien" and "ALE/Alien-v5" are one name.

        MinAtar's games bear Atari's names and are others: they have references where the table is
        MinAtar's or lists them as such. Raises Mistake for a task that the table lacks, naming the
        nearest it has.
        """
        small, ours = SMALL in task.lower(), SMALL in self.name.lower()
        alike = sorted(self.scores, key=lambda name: (SMALL in name.lower()) == small)  # they win
        known = {
            _plain(name): self.scores[name]
            for name in alike
            if ours or not small or SMALL in name.lower()
        }
        found = known.get(self._word(task), self.anything)
        if found is None:
            near = difflib.get_close_matches(_plain(task), known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            hint = f"; take the table {SMALL}" if small and not ours else hint
            raise Mistake(f"the table {self.identity} has no task {task!r}{hint}")
        return found

    def _word(self, task: str) -> str:
        """The task's plain name, without the ending that says which data set of it."""
        bare = DECORATION.sub("", task).lower()
        known = {_plain(name) for name in self.scores}
        for ending in sorted(self.endings, key=len, reverse=True):
            stem = bare.removesuffix(f"-{ending}")
            if stem != bare and _plain(bare) not in known and _plain(stem) in known:
                return _plain(stem)
        return _plain(task)


def tables() -> list[str]:
    """The names of the tables that come with Sterling."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def table(name: str) -> Table:
    """A table by name; raises Mistake for one that does not exist."""
    return _read(name)


@functools.cache
def _read(name: str) -> Table:
    path = FOLDER / f"{name}.json"
    if name not in tables():
        raise Mistake(f"no normalisation table is called {name!r}; there are {', '.join(tables())}")
    read = json.loads(path.read_text())
    scores = {task: (float(low), float(high)) for task, (low, high) in read["scores"].items()}
    ends = read.get("anything")
    anything = (float(ends[0]), float(ends[1])) if ends else None
    return Table(
        read["name"], int(read["version"]), read["source"], read["meaning"], scores, anything,
        tuple(read.get("endings", ())),
    )  # fmt: skip


def normalise(
    scores: Given, table: str | Table = "atari", *, tasks: Sequence[str] | None = None
) -> Scores:
    """The scores in units of a table: 0 and 1 are its two references, on each task.

    ``table``: a name of ``tables()``, or a :class:`Table` of your own. ``tasks`` names the columns
    of a plain array. Raises Mistake for scores that are normalised already.
    """
    chosen = _read(table) if isinstance(table, str) else table
    made = scores_of(scores)
    if tasks is not None:
        made = Scores.of(
            made.values, runs=made.runs, tasks=tasks, mask=made.mask, name=made.name,
            normaliser=made.normaliser, steps=made.steps,
        )  # fmt: skip
    if made.normaliser:
        raise Mistake(f"these scores are normalised by {made.normaliser} already")
    low, high = np.array([chosen.of(task) for task in made.tasks]).T
    if (low == high).any():
        flat = made.tasks[int(np.argmax(low == high))]
        raise Mistake(f"the table {chosen.identity} has equal references on {flat!r}")
    shape = (1, len(low)) + (1,) * (made.values.ndim - 2)
    values = (made.values - low.reshape(shape)) / (high - low).reshape(shape)
    return dataclasses.replace(made, values=values, normaliser=chosen.identity)


def _plain(task: str) -> str:
    """A task's name without its world's prefix, version, capitals and separators."""
    before = ""
    while before != task:
        before, task = task, DECORATION.sub("", task)
    return re.sub(r"[^a-z0-9]", "", task.lower())
