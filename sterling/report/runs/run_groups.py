"""Group runs for comparison: all runs of one label on one environment.

The label is the algorithm's name, or the one given as LABEL=PATH. Runs of one algorithm on one
environment whose settings differ get labels that name these settings; runs with equal settings are
one group with more seeds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from sterling.report.runs.curve_windows import CURVE_WINDOWS, window_means
from sterling.report.runs.read_runs import RunResult
from sterling.report.runs.setting_differences import differing_settings, flat_settings, settings_key
from sterling.report.text_tables import distinguishing_endings, format_steps, join_words
from sterling.statistics.scores.score_bounds import Bounds, resolve_failed_score, worst_score
from sterling.statistics.scores.score_table import FailedRule
from sterling.types import Mistake

BUDGET_SETTINGS = ("steps", "updates")
MAX_LABEL_SETTINGS = 3  # largest number of settings in a label


@dataclasses.dataclass(frozen=True)
class RunGroup:
    """All seeds of one label on one environment."""

    label: str
    environment: str
    results: list[RunResult]

    @property
    def scores(self) -> Float[np.ndarray, "run"]:
        """Return the score of every finished seed; NaN where it failed."""
        parts = [one.scores for one in self.results if one.scores is not None]
        return np.concatenate(parts) if parts else np.zeros(0)

    def scores_with(self, failed: FailedRule) -> Float[np.ndarray, "run"]:
        """Return the scores, with failed runs at ``failed`` if that is a number or "worst" (Mistake
        where no worst score is known), else NaN."""
        if failed == "worst" and self.failed and worst_score(self.within, self.better) is None:
            raise Mistake(
                f"the worst possible score on {self.environment} is not known, so failed seeds of "
                f"{self.label} cannot count as it; use --failed NUMBER"
            )
        number = resolve_failed_score(failed, self.within, self.better) if self.failed else None
        scores = self.scores
        if isinstance(number, int | float):
            scores = np.where(np.isnan(scores), float(number), scores)
        return scores

    @property
    def better(self) -> int:
        """Return which scores are better: -1 for lower ones, else higher ones."""
        return self.results[0].better

    @property
    def seeds(self) -> list[int]:
        """Return the seeds of the finished runs, in the order of the scores."""
        return [s for one in self.results if one.scores is not None for s in one.seeds]

    @property
    def failed(self) -> int:
        """Return how many seeds diverged."""
        return sum(len(one.failed) for one in self.results)

    @property
    def within(self) -> Bounds | None:
        """Return the bounds of the scores if all results agree on them, else None."""
        declared = {one.within for one in self.results}
        return declared.pop() if len(declared) == 1 else None

    @property
    def steps(self) -> list[float]:
        """Return the budgets trained for, ascending; usually one. See ``unit``."""
        taken = [one.steps if one.updates is None else one.updates for one in self.results]
        return sorted({float(each) for each in taken if each is not None})

    @property
    def unit(self) -> str:
        """Return what the budgets count: "steps", or "updates" where no run took steps."""
        return "updates" if all(one.updates is not None for one in self.results) else "steps"

    @property
    def axis_units(self) -> set[str]:
        """Return what the x axis of its curves counts; "updates" also where steps followed them."""
        return {one.curves.unit for one in self.results if one.curves.steps.size} or {self.unit}

    @property
    def episodes(self) -> set[str]:
        """Return which episodes its curves' returns come from: "training", "evaluation"."""
        return {one.curves.episodes for one in self.results if one.curves.steps.size}

    @property
    def budgets(self) -> str:
        """Return the budgets as text: 1M, 100 updates, or 100 updates then 1M steps."""
        taken, before = (", ".join(map(format_steps, some)) for some in (self.steps, self.before))
        if not taken or (self.unit == "steps" and not before):
            return taken
        return (
            f"{taken} updates" if self.unit == "updates" else f"{before} updates then {taken} steps"
        )

    @property
    def before(self) -> list[float]:
        """Return the numbers of offline updates before the first step, of runs that took steps."""
        online = (one for one in self.results if one.updates is None)
        return sorted({float(one.config.get("updates") or 0) for one in online} - {0.0})

    def logs(self) -> list[tuple[Float[np.ndarray, "row"], Float[np.ndarray, "row"]]]:
        """Return steps and returns of each seed that did not fail, at rows with an episode."""
        return [(steps, values) for steps, values, _ in self._seed_logs()]

    def _seed_logs(self) -> list[tuple[np.ndarray, np.ndarray, float]]:
        """Return steps and returns as ``logs`` does, and where the seed's log ends: for a run that
        is its last row, also where the seed's last episode ended earlier."""
        return [
            (
                part.steps[known],
                values[known],
                float((part.steps if one.config else part.steps[known])[-1]),
            )
            for one in self.results
            for part in [one.curves]
            for seed, values in zip(part.seeds, part.returns, strict=True)
            if seed not in part.failed and (known := np.isfinite(values)).any()
        ]

    def curves(self) -> tuple[Float[np.ndarray, "time"], Float[np.ndarray, "run time"]]:
        """Return every seed that did not fail, averaged over equal windows of steps.

        There are ``CURVE_WINDOWS`` windows; steps are their ends. A window without a finished
        episode is interpolated; after the last episode it counts as that one up to the end of the
        run's log. Before the first episode and after its log a seed is NaN. A log without steps has
        no curve.
        """
        lasts = [one.curves.steps[-1] for one in self.results if one.curves.steps.size]
        if max(lasts, default=0.0) <= 0.0:
            return np.zeros(0), np.zeros((0, 0))
        axis = max(lasts) / CURVE_WINDOWS * np.arange(1, CURVE_WINDOWS + 1)
        rows = [window_means(steps, values, axis, end) for steps, values, end in self._seed_logs()]
        return axis, np.array(rows).reshape(len(rows), axis.size)


def is_lower_better(groups: Sequence[RunGroup]) -> bool:
    """Whether the lower scores of these groups are better; Mistake where runs say both."""
    declared = {one.better for group in groups for one in group.results}
    if len(declared) > 1:
        raise Mistake(
            f"runs on {groups[0].environment} disagree on which direction of the metric is better; "
            "compare runs that declare its channel in the same way"
        )
    return declared == {-1}


def group_results(
    results: Sequence[RunResult], tasks: Sequence[str] | None = None
) -> tuple[list[RunGroup], list[str]]:
    """Group results by label and environment, in the order given; return notes on what was dropped.

    ``tasks`` limits the environments. Raises Mistake for a task without results.
    """
    notes: list[str] = []
    chosen = _select_tasks(results, tasks)
    labels = _label_results(chosen)
    groups: dict[tuple[str, str], list[RunResult]] = {}
    for result, label in zip(chosen, labels, strict=True):
        groups.setdefault((label, result.environment), []).append(result)
    made = [
        RunGroup(label, environment, _drop_repeated_seeds(members, notes))
        for (label, environment), members in groups.items()
    ]
    return made, list(dict.fromkeys(notes))


def unique_labels(groups: Iterable[RunGroup]) -> list[str]:
    """Return each label once, in order."""
    return list(dict.fromkeys(group.label for group in groups))


def unique_environments(groups: Iterable[RunGroup]) -> list[str]:
    """Return each environment once, in order."""
    return list(dict.fromkeys(group.environment for group in groups))


def _select_tasks(results: Sequence[RunResult], tasks: Sequence[str] | None) -> list[RunResult]:
    if not tasks:
        return list(results)
    known = list(dict.fromkeys(one.environment for one in results))
    missing = [task for task in tasks if task not in known]
    if missing:
        raise Mistake(f"no run on {join_words(missing)}; there are runs on {join_words(known)}")
    return [one for one in results if one.environment in tasks]


def _label_results(results: Sequence[RunResult]) -> list[str]:
    """Return one label per result; equal where an algorithm's settings on a task are equal."""
    kinds: dict[tuple[str, str], dict[Hashable, RunResult]] = {}
    for one in results:
        if one.label is None:
            kind = kinds.setdefault((one.algorithm, one.environment), {})
            kind.setdefault(settings_key(one), one)
    names = {
        (*kind, setting): name
        for kind, rivals in kinds.items()
        for setting, name in zip(rivals, _distinct_labels(list(rivals.values())), strict=True)
    }
    return [
        names[one.algorithm, one.environment, settings_key(one)] if one.label is None else one.label
        for one in results
    ]


def _distinct_labels(rivals: Sequence[RunResult]) -> list[str]:
    """Return a label for each setting of an algorithm: at most three settings, or its folder."""
    algorithm, names = rivals[0].algorithm, differing_settings(rivals)
    if len(names) <= MAX_LABEL_SETTINGS:
        made = [
            " ".join([algorithm, *(_setting_text(name, flat_settings(one)) for name in names)])
            for one in rivals
        ]
        if len(set(made)) == len(made):
            return made
    return [
        f"{algorithm} ({place})" for place in distinguishing_endings([one.place for one in rivals])
    ]


def _setting_text(name: str, own: Mapping[str, Any]) -> str:
    """Format one setting: 1k steps, lr=0.1, no data."""
    if name in BUDGET_SETTINGS:
        taken = format_steps(own.get(name, 0))
        return f"{taken} {name[:-1] if taken == '1' else name}"
    return f"{name}={own[name]}" if name in own else f"no {name}"


def _drop_repeated_seeds(members: list[RunResult], notes: list[str]) -> list[RunResult]:
    """Return the results without seeds that another one already has: a repetition is no evidence.

    Of two results with one seed the finished one is kept, else the earlier. Unfinished runs get no
    note here: reading them has already noted it.
    """
    kept: dict[int, RunResult] = {}
    taken: dict[Hashable, set[int]] = {}
    for at in sorted(range(len(members)), key=lambda at: _incompleteness(members[at])):
        one = members[at]
        seen = taken.setdefault(_seed_origin(one), set())
        twice = [seed for seed in one.seeds if seed in seen]
        seen.update(one.seeds)
        if twice and not _incompleteness(one)[0]:
            notes.append(
                f"{one.place}: seeds {join_words(twice)} were already counted, so left out here"
            )
        if not twice:
            kept[at] = one
        elif len(twice) < len(one.seeds):
            kept[at] = _without_seeds(one, set(twice))
    return [kept[at] for at in sorted(kept)]


def _incompleteness(one: RunResult) -> tuple[bool, bool]:
    """Return whether a result is unfinished, and whether it lacks scores (a sort key)."""
    return not one.result, one.scores is None


def _seed_origin(one: RunResult) -> Hashable:
    """Return what identifies a seed's run: its settings, or its file where those are unknown."""
    if one.config:
        return one.algorithm, settings_key(one)
    return str(Path(one.place).resolve())


def _without_seeds(one: RunResult, seeds: set[int]) -> RunResult:
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
