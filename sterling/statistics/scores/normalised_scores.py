"""Normalise scores by fixed, versioned references, never by the set that is being compared.

    (score - low) / (high - low)

A table in ``sterling/references/normalisation/<name>.json``, or a user's own file
(``normalisation_files.py``), says for each task what counts as 0 and as 1, and where those numbers
come from. Scaling by the best and worst of the compared algorithms
instead would let a newcomer change everyone's numbers.
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

from sterling.lookup import user_imports
from sterling.statistics.scores import normalisation_files
from sterling.statistics.scores.score_table import Scores, ScoresLike, as_scores
from sterling.types import Mistake

TABLES_FOLDER = Path(__file__).parents[2] / "references" / "normalisation"
NAME_DECORATION = re.compile(
    r"^(ale|dm_control|dmc|minatar|mujoco|d4rl)[/:_]|(noframeskip|deterministic)?[-_]v\d+$"
    r"|[-_](misc|minatar)$",
    re.IGNORECASE,
)
MINATAR = "minatar"  # in the name of a task, or of a table


@dataclasses.dataclass(frozen=True)
class Table:
    """Reference scores of some tasks."""

    name: str
    version: int
    source: str
    meaning: str  # what 0 and 1 stand for
    scores: Mapping[str, tuple[float, float]]  # task -> what counts as 0, and as 1
    anything: tuple[float, float] | None = None  # for tasks not listed, if all share one scale
    endings: tuple[str, ...] = ()  # suffixes of datasets after a task's name

    @property
    def identity(self) -> str:
        """Return the table's name and version, which normalised scores keep; a user's file has
        version 0, and only its name is kept."""
        return f"{self.name}/{self.version}" if self.version else self.name

    def references(self, task: str) -> tuple[float, float]:
        """Return the references of a task; "Alien", "alien" and "ALE/Alien-v5" are one name.

        MinAtar's games have the names of Atari's and are different games: they have references only
        where the table is MinAtar's or lists them as such. Raises Mistake for a task that the table
        lacks, naming the nearest it has. A task that the table spells in the same way comes first.
        """
        task = user_imports.short_name(task)
        if task in self.scores:
            return self.scores[task]
        is_minatar, table_is_minatar = MINATAR in task.lower(), MINATAR in self.name.lower()
        # names of the same kind come last, so that they win
        alike = sorted(self.scores, key=lambda name: (MINATAR in name.lower()) == is_minatar)
        known = {
            _plain_task_name(name): self.scores[name]
            for name in alike
            if table_is_minatar or not is_minatar or MINATAR in name.lower()
        }
        found = known.get(self._known_name(task), self.anything)
        if found is None:
            near = difflib.get_close_matches(_plain_task_name(task), known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            hint = f"; use the table {MINATAR}" if is_minatar and not table_is_minatar else hint
            raise Mistake(f"the table {self.identity} has no task {task!r}{hint}")
        return found

    def _known_name(self, task: str) -> str:
        """Return the task's plain name, without the suffix that names its dataset."""
        bare = NAME_DECORATION.sub("", task).lower()
        known = {_plain_task_name(name) for name in self.scores}
        for ending in sorted(self.endings, key=len, reverse=True):
            stem = bare.removesuffix(f"-{ending}")
            if (
                stem != bare
                and _plain_task_name(bare) not in known
                and _plain_task_name(stem) in known
            ):
                return _plain_task_name(stem)
        return _plain_task_name(task)


def tables() -> list[str]:
    """Return the names of the tables that come with Sterling."""
    return sorted(path.stem for path in TABLES_FOLDER.glob("*.json"))


def table(name: str | Path) -> Table:
    """Load a table by name, or a user's own file (``.json`` or ``.csv``: see
    ``normalisation_files.py``); raises Mistake for one that does not exist."""
    if not normalisation_files.is_table_file(str(name)):
        return _load_table(str(name))
    path = Path(name).expanduser()
    scores, about = normalisation_files.read_references(path)
    meaning = about.get("meaning", "0 is each environment's low reference, 1 its high one")
    return Table(about.get("name", path.name), 0, about.get("source", str(path)), meaning, scores)


load_named = table  # an argument of `normalise` has the same name


@functools.cache
def _load_table(name: str) -> Table:
    path = TABLES_FOLDER / f"{name}.json"
    if name not in tables():
        raise Mistake(
            f"unknown normalisation table {name!r}; use one of {', '.join(tables())}, or a file of "
            "your own (.csv, .json)"
        )
    read = json.loads(path.read_text())
    scores = {task: (float(low), float(high)) for task, (low, high) in read["scores"].items()}
    ends = read.get("anything")
    anything = (float(ends[0]), float(ends[1])) if ends else None
    return Table(
        read["name"], int(read["version"]), read["source"], read["meaning"], scores, anything,
        tuple(read.get("endings", ())),
    )  # fmt: skip


def normalise(
    scores: ScoresLike, table: str | Path | Table = "atari", *, tasks: Sequence[str] | None = None
) -> Scores:
    """Normalise scores by a table: 0 and 1 are its two references on each task.

    ``table``: a name of ``tables()``, a file of your own, or a :class:`Table`. ``tasks`` names the
    columns of a plain array. Raises Mistake for scores that are normalised already.
    """
    chosen = table if isinstance(table, Table) else load_named(table)
    made = as_scores(scores)
    if tasks is not None:
        made = Scores.from_values(
            made.values, runs=made.runs, tasks=tasks, mask=made.mask, name=made.name,
            normaliser=made.normaliser, steps=made.steps,
        )  # fmt: skip
    if made.normaliser:
        raise Mistake(f"these scores are normalised by {made.normaliser} already")
    low, high = np.array([chosen.references(task) for task in made.tasks]).T
    if (low == high).any():
        flat = made.tasks[int(np.argmax(low == high))]
        raise Mistake(f"the table {chosen.identity} has equal references for 0 and 1 on {flat!r}")
    shape = (1, len(low)) + (1,) * (made.values.ndim - 2)
    values = (made.values - low.reshape(shape)) / (high - low).reshape(shape)
    return dataclasses.replace(made, values=values, normaliser=chosen.identity)


def _plain_task_name(task: str) -> str:
    """Return a task's name without suite prefix, version, capitals and separators."""
    before = ""
    while before != task:
        before, task = task, NAME_DECORATION.sub("", task)
    return re.sub(r"[^a-z0-9]", "", task.lower())
