"""Rank several runs by one evaluation: what ``sterling evaluate A B C`` does."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sterling.evaluation import run_evaluation
from sterling.report.text_tables import join_words, text_table
from sterling.statistics import Estimate, Headline
from sterling.system.mistake import Mistake
from sterling.training.trained_run import TrainedRun


@dataclasses.dataclass(frozen=True)
class RankedRun:
    """One run of a ranking."""

    label: str  # its folder
    estimate: Headline | Estimate  # of the mean over its seeds
    per_seed: Mapping[int, float | None]  # None: failed

    @property
    def shown(self) -> Estimate:
        """Return the estimate that ranks the run; NaN if no seed is left."""
        made = self.estimate.shown if isinstance(self.estimate, Headline) else self.estimate
        return made or Estimate(math.nan, None, None, 0, "every seed failed", 0.95)


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Several runs, ranked by their returns in the environment or by estimates from a dataset."""

    title: str  # what the numbers are
    runs: tuple[RankedRun, ...]  # the best first
    behaviour: Estimate | None = None  # the value of the dataset's own policy
    log: str | None = None  # the dataset, if one was used

    def __repr__(self) -> str:
        rows = [
            [str(rank), run.label, str(len(run.per_seed)), str(run.estimate), *_method(run.shown)]
            for rank, run in enumerate(self.runs, 1)
        ]
        if self.behaviour is not None:
            rows.append(["", "behaviour", "", str(self.behaviour), *_method(self.behaviour)])
        table = text_table(["", "run", "seeds", "mean", "interval"], rows, "rlrll")
        return f"{self.title}\n{table}\n\n{self.conclusion}"

    @property
    def conclusion(self) -> str:
        """Return in one sentence whether the interval of the first lies above all others."""
        first, *others = self.runs
        low = first.shown.low
        near = [
            run.label
            for run in others
            if low is None or run.shown.high is None or run.shown.high >= low
        ]
        if not others:
            return "There is no other run to compare it with."
        if not near:
            return f"{first.label} is the best: its interval lies above those of the others."
        which = join_words([first.label, *near])
        return f"{which} are not distinguished: their intervals overlap, or there are none."

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON, the best run first."""
        return {
            "title": self.title,
            "log": self.log,
            "runs": [
                {
                    "run": run.label,
                    "per_seed": {str(seed): score for seed, score in run.per_seed.items()},
                    "estimate": run.estimate.to_json() if run.per_seed else None,
                }
                for run in self.runs
            ],
            "behaviour": None if self.behaviour is None else self.behaviour.to_json(),
            "conclusion": self.conclusion,
        }


def rank_runs(runs: Sequence[TrainedRun | str | Path], options: Mapping[str, Any]) -> Ranking:
    """Evaluate runs alike, each with ``options`` of ``sterling.evaluate``, and rank them.

    The runs are of one environment, and with ``method`` all are estimated from one dataset: by
    default the one that all of them were trained from. A run's estimate is the mean over its seeds;
    from a dataset its bounds are the means of the seeds' bounds, which is wider than needed, as the
    seeds share the dataset's errors only in part. Raises Mistake for runs that cannot be compared.
    """
    opened = [run_evaluation.open_run(each, options["phase"]) for each in runs]
    labels = [str(run.path or run.settings.title) for run in opened]
    _check_comparable(opened, labels)
    chosen = [run_evaluation.chosen_policies(run, dict(options)) for run in opened]
    for run, kept in chosen:
        run_evaluation.check_options(run, kept)
    if options["method"] is None:
        return _rank_in_environment([run for run, _ in chosen], labels, chosen[0][1])
    return _rank_from_log([run for run, _ in chosen], labels, chosen[0][1])


def _check_comparable(runs: Sequence[TrainedRun], labels: Sequence[str]) -> None:
    """Raise Mistake for no runs, a run that is given twice, language models, and several
    environments."""
    if not runs:
        raise Mistake("evaluate needs at least one run.")
    for label in labels:
        if labels.count(label) > 1:
            raise Mistake(f"{label} is given twice. Leave one out.")
    for run, label in zip(runs, labels, strict=True):
        if run.settings.speech is not None:
            raise Mistake(
                f"{label} trains a language model, which is not ranked. Give one run, and the "
                "others with --beside."
            )
        if run.settings.name != runs[0].settings.name:
            raise Mistake(
                f"{labels[0]} is of {runs[0].settings.name or 'no environment'}, and {label} of "
                f"{run.settings.name or 'none'}. Rank runs of one environment."
            )


def _rank_in_environment(
    runs: Sequence[TrainedRun], labels: Sequence[str], options: Mapping[str, Any]
) -> Ranking:
    """Rank runs by their returns in their environment."""
    if options["data"] is not None:
        raise Mistake("--data compares one run with a dataset. Add --method, or give one run.")
    count = run_evaluation.DEFAULT_EPISODES if options["episodes"] is None else options["episodes"]
    how = {name: options[name] for name in ("failed", "return_within")}
    how["limit"] = options["evaluate_limit"]

    def ranked(run: TrainedRun, label: str) -> RankedRun:
        found = run_evaluation.evaluate_returns(run, count, how)
        return RankedRun(label, found.estimates["return"], found.per_seed)

    title = f"return in {runs[0].settings.name or 'the environment'}, {count} episodes per seed"
    return Ranking(title, _best_first(ranked, runs, labels))


def _rank_from_log(
    runs: Sequence[TrainedRun], labels: Sequence[str], options: Mapping[str, Any]
) -> Ranking:
    """Rank runs by estimates from one dataset, beside the value of its own policy."""
    path = _common_log(runs, labels, options)

    def ranked(run: TrainedRun, label: str) -> RankedRun:
        data = run_evaluation.log_of_run(run, path, options["method"])
        found = run_evaluation.estimate_seeds(run, data, options)
        scores = dict.fromkeys(run.settings.seeds) | {
            seed: made.value for (seed, _), made in found.items()
        }
        return RankedRun(label, _mean_of_seeds(list(found.values())), scores)

    made = _best_first(ranked, runs, labels)
    data = run_evaluation.log_of_run(runs[0], path, options["method"])
    title = run_evaluation.estimate_title(path, options)
    return Ranking(title, made, run_evaluation.estimate_behaviour(data, options), str(path))


def _common_log(
    runs: Sequence[TrainedRun], labels: Sequence[str], options: Mapping[str, Any]
) -> Path | None:
    """Return the dataset that is given, or the one that all runs were trained from."""
    if options["data"] is not None:
        return Path(options["data"])
    logs = {
        label: run_evaluation.training_log(run) for label, run in zip(labels, runs, strict=True)
    }
    for label, log in logs.items():
        if log != logs[labels[0]]:
            raise Mistake(
                f"{labels[0]} was trained from {logs[labels[0]] or 'no dataset'}, and {label} from "
                f"{log or 'none'}. Name the one to estimate from: --data FILE."
            )
    return logs[labels[0]]


def _best_first(
    ranked: Callable[[TrainedRun, str], RankedRun],
    runs: Sequence[TrainedRun],
    labels: Sequence[str],
) -> tuple[RankedRun, ...]:
    """Return the runs by descending estimates, those without one last."""
    made = [ranked(run, label) for run, label in zip(runs, labels, strict=True)]
    return tuple(
        sorted(made, key=lambda one: (math.isnan(one.shown.value), -one.shown.value, one.label))
    )


def _mean_of_seeds(found: Sequence[Estimate]) -> Estimate:
    """Return the mean of the seeds' estimates, with the means of their bounds."""
    if not found:
        return Estimate(math.nan, None, None, 0, "every seed failed", 0.95)
    if len(found) == 1:
        return found[0]
    value = math.fsum(one.value for one in found) / len(found)
    ends = [(one.low, one.high) for one in found if one.low is not None and one.high is not None]
    if len(ends) < len(found):
        without = next(one for one in found if one.low is None or one.high is None)
        return Estimate(value, None, None, len(found), without.method, without.level)
    low, high = (math.fsum(each) / len(ends) for each in zip(*ends, strict=True))
    method = f"{found[0].method}; mean of the seeds' values and bounds"
    return Estimate(value, low, high, len(found), method, found[0].level)


def _method(made: Estimate) -> list[str]:
    return [f"{made.level:.0%}, {made.method}"]
