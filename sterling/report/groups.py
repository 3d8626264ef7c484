"""What is compared: the runs of one label on one environment, taken together.

The label is the algorithm's name, or the one given as LABEL=PATH. Runs of one algorithm on one
environment that differ in their settings are told apart by those settings; runs that do not are
one group with more seeds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from sterling.report.runs import Result
from sterling.report.settings import alike, differing, settings
from sterling.report.text import endings, listed, steps
from sterling.statistics.declared import Bounds, counted_as, worst
from sterling.statistics.scores import Failed
from sterling.types import Mistake

BUDGETS = ("steps", "updates")
MOST = 3  # settings in a label
WINDOWS = 50  # a curve is averaged over: single episodes are noise


@dataclasses.dataclass(frozen=True)
class Group:
    """All seeds of one label on one environment."""

    label: str
    environment: str
    results: list[Result]

    @property
    def scores(self) -> Float[np.ndarray, "run"]:
        """The score of every finished seed; NaN where it failed."""
        parts = [one.scores for one in self.results if one.scores is not None]
        return np.concatenate(parts) if parts else np.zeros(0)

    def scores_with(self, failed: Failed) -> Float[np.ndarray, "run"]:
        """The scores with failed runs as ``failed`` says: a number, "worst" (Mistake where it is
        not known); with "exclude" and None they stay NaN."""
        if failed == "worst" and self.failed and worst(self.within, self.better) is None:
            raise Mistake(
                f"the worst possible score on {self.environment} is not known, so failed seeds of "
                f"{self.label} cannot count as it; use --failed NUMBER"
            )
        number = counted_as(failed, self.within, self.better) if self.failed else None
        scores = self.scores
        if isinstance(number, int | float):
            scores = np.where(np.isnan(scores), float(number), scores)
        return scores

    @property
    def better(self) -> int:
        """Which scores are better: -1 the lower ones, else the higher ones."""
        return self.results[0].better

    @property
    def seeds(self) -> list[int]:
        """Of the finished runs, in the order of the scores."""
        return [s for one in self.results if one.scores is not None for s in one.seeds]

    @property
    def failed(self) -> int:
        """How many seeds diverged."""
        return sum(len(one.failed) for one in self.results)

    @property
    def within(self) -> Bounds | None:
        """What scores cannot leave, where all results say the same."""
        said = {one.within for one in self.results}
        return said.pop() if len(said) == 1 else None

    @property
    def steps(self) -> list[float]:
        """The budgets taken, from small to large; usually one. See ``unit``."""
        taken = [one.steps if one.updates is None else one.updates for one in self.results]
        return sorted({float(each) for each in taken if each is not None})

    @property
    def unit(self) -> str:
        """What its progress is counted in: "steps", or "updates" where none were taken."""
        return "updates" if all(one.updates is not None for one in self.results) else "steps"

    @property
    def counted(self) -> set[str]:
        """What the steps of its curves count; "updates" also where steps were taken after them."""
        return {one.curves.unit for one in self.results if one.curves.steps.size} or {self.unit}

    @property
    def episodes(self) -> set[str]:
        """Which episodes its curves' returns are of: "training", "evaluation"."""
        return {one.curves.episodes for one in self.results if one.curves.steps.size}

    @property
    def budgets(self) -> str:
        """The same in words: 1M, 100 updates, or 100 updates then 1M steps."""
        taken, before = (", ".join(map(steps, some)) for some in (self.steps, self.before))
        if not taken or (self.unit == "steps" and not before):
            return taken
        return (
            f"{taken} updates" if self.unit == "updates" else f"{before} updates then {taken} steps"
        )

    @property
    def before(self) -> list[float]:
        """Gradient updates on a log before the first step, of those that took steps."""
        lived = (one for one in self.results if one.updates is None)
        return sorted({float(one.config.get("updates") or 0) for one in lived} - {0.0})

    def logs(self) -> list[tuple[Float[np.ndarray, "row"], Float[np.ndarray, "row"]]]:
        """Steps and returns of every seed that did not fail, where it finished an episode."""
        return [
            (part.steps[known], values[known])
            for part in (one.curves for one in self.results)
            for seed, values in zip(part.seeds, part.returns, strict=True)
            if seed not in part.failed and (known := np.isfinite(values)).any()
        ]

    def curves(self) -> tuple[Float[np.ndarray, "time"], Float[np.ndarray, "run time"]]:
        """Every seed that did not fail, averaged over ``WINDOWS`` equal windows of steps.

        Steps are the windows' ends. A window without a finished episode is bridged; before the
        first and after the last known one a seed is NaN. A log that took no step is no curve.
        """
        lasts = [one.curves.steps[-1] for one in self.results if one.curves.steps.size]
        if max(lasts, default=0.0) <= 0.0:
            return np.zeros(0), np.zeros((0, 0))
        axis = max(lasts) / WINDOWS * np.arange(1, WINDOWS + 1)
        rows = [_bridged(steps, values, axis) for steps, values in self.logs()]
        return axis, np.array(rows).reshape(len(rows), axis.size)


def less_is_better(groups: Sequence[Group]) -> bool:
    """Whether the lower scores of these groups are better; Mistake where runs say both."""
    said = {one.better for group in groups for one in group.results}
    if len(said) > 1:
        raise Mistake(
            f"runs on {groups[0].environment} differ in whether more of this metric is better; "
            "compare runs that declare the channel alike"
        )
    return said == {-1}


def gather(
    results: Sequence[Result], tasks: Sequence[str] | None = None
) -> tuple[list[Group], list[str]]:
    """The groups, in the order they were given, and notes on what was put together or left out.

    ``tasks`` limits the environments. Raises Mistake for a task that no result is of.
    """
    notes: list[str] = []
    chosen = _of_tasks(results, tasks)
    labels = _labels(chosen)
    groups: dict[tuple[str, str], list[Result]] = {}
    for result, label in zip(chosen, labels, strict=True):
        groups.setdefault((label, result.environment), []).append(result)
    made = [
        Group(label, environment, _fresh(members, notes))
        for (label, environment), members in groups.items()
    ]
    return made, list(dict.fromkeys(notes))


def labels(groups: Iterable[Group]) -> list[str]:
    """Each label once, in order."""
    return list(dict.fromkeys(group.label for group in groups))


def environments(groups: Iterable[Group]) -> list[str]:
    """Each environment once, in order."""
    return list(dict.fromkeys(group.environment for group in groups))


def _bridged(
    steps: Float[np.ndarray, "row"],
    values: Float[np.ndarray, "row"],
    axis: Float[np.ndarray, "time"],
) -> Float[np.ndarray, "time"]:
    """The mean of each window that ends at ``axis``, interpolated where it holds nothing."""
    at = np.minimum(np.searchsorted(axis, steps - 1e-6 * axis[0]), axis.size - 1)
    counts = np.bincount(at, minlength=axis.size)
    means = np.bincount(at, values, axis.size) / np.maximum(counts, 1)
    known = counts > 0
    return np.interp(axis, axis[known], means[known], left=np.nan, right=np.nan)


def _of_tasks(results: Sequence[Result], tasks: Sequence[str] | None) -> list[Result]:
    if not tasks:
        return list(results)
    known = list(dict.fromkeys(one.environment for one in results))
    missing = [task for task in tasks if task not in known]
    if missing:
        raise Mistake(f"no run on {listed(missing)}; there are runs on {listed(known)}")
    return [one for one in results if one.environment in tasks]


def _labels(results: Sequence[Result]) -> list[str]:
    """One label per result; equal ones where an algorithm's settings on a task are equal."""
    kinds: dict[tuple[str, str], dict[Hashable, Result]] = {}
    for one in results:
        if one.label is None:
            kind = kinds.setdefault((one.algorithm, one.environment), {})
            kind.setdefault(alike(one), one)
    names = {
        (*kind, setting): name
        for kind, rivals in kinds.items()
        for setting, name in zip(rivals, _told_apart(list(rivals.values())), strict=True)
    }
    return [
        names[one.algorithm, one.environment, alike(one)] if one.label is None else one.label
        for one in results
    ]


def _told_apart(rivals: Sequence[Result]) -> list[str]:
    """A label for each of several settings of an algorithm: at most three of them, or its place."""
    algorithm, names = rivals[0].algorithm, differing(rivals)
    if len(names) <= MOST:
        made = [
            " ".join([algorithm, *(_word(name, settings(one)) for name in names)]) for one in rivals
        ]
        if len(set(made)) == len(made):
            return made
    return [f"{algorithm} ({place})" for place in endings([one.place for one in rivals])]


def _word(name: str, own: Mapping[str, Any]) -> str:
    """One setting: 1k steps, lr=0.1, no data."""
    if name in BUDGETS:
        taken = steps(own.get(name, 0))
        return f"{taken} {name[:-1] if taken == '1' else name}"
    return f"{name}={own[name]}" if name in own else f"no {name}"


def _fresh(members: list[Result], notes: list[str]) -> list[Result]:
    """The results without seeds that another one already has: a repetition is no evidence.

    Of two the finished one is kept, else the earlier. Of what was not finished nothing is said
    here: reading it said so.
    """
    kept: dict[int, Result] = {}
    taken: dict[Hashable, set[int]] = {}
    for at in sorted(range(len(members)), key=lambda at: _unfinished(members[at])):
        one = members[at]
        seen = taken.setdefault(_origin(one), set())
        twice = [seed for seed in one.seeds if seed in seen]
        seen.update(one.seeds)
        if twice and not _unfinished(one)[0]:
            notes.append(
                f"{one.place}: seeds {listed(twice)} were already counted, and left out here"
            )
        if not twice:
            kept[at] = one
        elif len(twice) < len(one.seeds):
            kept[at] = _without(one, set(twice))
    return [kept[at] for at in sorted(kept)]


def _unfinished(one: Result) -> tuple[bool, bool]:
    """Whether a result has yet to be finished, and whether it lacks scores."""
    return not one.result, one.scores is None


def _origin(one: Result) -> Hashable:
    """What a seed is a seed of: the same settings, or the same file where none are known."""
    if one.config:
        return one.algorithm, alike(one)
    return str(Path(one.place).resolve())


def _without(one: Result, seeds: set[int]) -> Result:
    keep = [at for at, seed in enumerate(one.seeds) if seed not in seeds]
    curves = one.curves
    if curves.seeds:
        rows = [at for at, seed in enumerate(curves.seeds) if seed not in seeds]
        failed = {seed: step for seed, step in curves.failed.items() if seed not in seeds}
        left = [curves.seeds[at] for at in rows]
        curves = dataclasses.replace(
            curves, returns=curves.returns[rows], seeds=left, failed=failed
        )
    return dataclasses.replace(
        one,
        seeds=[one.seeds[at] for at in keep],
        scores=None if one.scores is None else one.scores[keep],
        curves=curves,
    )
