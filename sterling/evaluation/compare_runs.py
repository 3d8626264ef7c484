"""Compare algorithms by their runs: what ``sterling compare`` and ``sterling.compare`` do."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling.report.compare_text import comparison_notes, contest_text, wrap_text
from sterling.report.normalised_aggregates import NormalisedAggregates, normalised_aggregates
from sterling.report.overall_scores import OverallComparison, compare_overall
from sterling.report.pairwise_contest import (
    EnvironmentComparison,
    compare_on_environments,
)
from sterling.report.runs.read_runs import read_results
from sterling.report.runs.run_groups import RunGroup, group_results
from sterling.report.verdict_words import (
    environment_conclusions,
    method_paragraph,
    overall_conclusions,
)
from sterling.statistics import table as load_table
from sterling.system.mistake import Mistake
from sterling.system.shown_values import shown_value
from sterling.training.trained_run import TrainedRun
from sterling.training.until_decided.decided_comparison import (
    DecidedComparison,
    compare_until_decided,
)


@dataclasses.dataclass(frozen=True)
class RunComparison:
    """Runs compared on every environment that they share."""

    contests: list[EnvironmentComparison]  # one for each environment
    over: list[OverallComparison]  # over all environments
    notes: list[str]  # what weakens the comparison, in words
    alpha: float  # largest probability of any wrong decision per environment
    normalised: NormalisedAggregates | None = None  # over environments, if a table is given

    def __repr__(self) -> str:
        parts = [f"{contest_text(contest)}\n\n" for contest in self.contests]
        lines = [wrap_text(words) for words in overall_conclusions(self.over)]
        lines += [f"{self.normalised}\n"] if self.normalised is not None else []
        if any(one.pairs for one in self.contests):
            lines.append(wrap_text(method_paragraph(self.contests, self.alpha)))
        lines += [wrap_text(f"note: {note}") for note in self.notes]
        return "".join(parts) + "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        words = [*overall_conclusions(self.over), *environment_conclusions(self.contests)]
        made = {"contests": _plain(self.contests), "over": _plain(self.over), "words": words}
        if self.normalised is not None:
            made["normalised"] = _plain(self.normalised.to_json())
        return {**made, "notes": self.notes}


def compare(
    *runs: TrainedRun | str | Path,
    tasks: Sequence[str] | None = None,
    metric: str = "return",
    normalise: str | Path | None = None,
    failed: Any = None,
    about: str = "tendency",
    within: Any = None,
    alpha: float = 0.05,
    key: int = 0,
    until_decided: bool = False,
    **training: Any,
) -> RunComparison | DecidedComparison:
    """Compare algorithms by their runs, with error control; or train until it is decided.

    Args:
        runs: run folders, folders of them, files of scores (CSV or JSON), each also as
            ``"LABEL=PATH"``, and runs that were trained or loaded; with ``until_decided``
            algorithms, as ``"[LABEL=]ALGORITHM[:FIELD=VALUE,...]"``.
        tasks: use only runs on these environments.
        metric: the score: return, or a column of metrics.
        normalise: a table of reference scores, by its name or file: also compare normalised scores
            over all environments.
        failed: what a failed seed counts as: a score, "worst" or "exclude".
        about: what to decide: "tendency" or "mean" (see docs/statistics.md).
        within: (low, high), bounds of all scores, for ``about="mean"``.
        alpha: largest probability of any wrong decision per environment.
        key: random seed of the resampling.
        until_decided: train more seeds until the comparison is decided.
        **training: with ``until_decided`` ``environment`` and ``steps``, and if wanted
            ``max_seeds`` (30), ``per_look`` (5), ``out``, ``strategy``, ``preset`` and ``quiet``.

    Returns:
        A comparison; its text is what ``sterling compare`` prints, and it has ``to_json()``.

    Raises:
        Mistake: no runs, or options that do not belong together.
    """
    check_comparison(about=about, within=within, alpha=alpha)
    scoring = {"metric": metric, "failed": failed, "about": about, "within": within}
    scoring |= {"alpha": alpha, "key": key}
    if until_decided:
        if tasks:
            raise Mistake("--until-decided compares on one --environment. Leave out --tasks.")
        if normalise:
            raise Mistake(
                "--until-decided compares returns of one environment. Leave out --normalise."
            )
        return compare_until_decided([_algorithm_word(each) for each in runs], scoring, **training)
    if training:
        words = ", ".join(training)
        raise Mistake(f"{words} has an effect only with until_decided=True. Leave it out.")
    if normalise:
        load_table(normalise)  # raises for a wrong one before anything is compared
        scoring["normalise"] = str(normalise)
    results, notes = read_results([run_word(each) for each in runs], metric)
    groups, more = group_results(results, None if tasks is None else list(tasks))
    return compare_groups(groups, [*notes, *more], scoring)


def compare_groups(
    groups: list[RunGroup], notes: list[str], scoring: dict[str, Any]
) -> RunComparison:
    """Compare groups of runs; ``scoring`` has alpha, failed, key, about and within."""
    how = {name: scoring[name] for name in ("alpha", "failed", "key", "about", "within")}
    made = compare_on_environments(groups, **how)
    over = compare_overall(groups, level=1 - scoring["alpha"], failed=scoring["failed"])
    cautions = comparison_notes(groups, notes, made, scoring["failed"])
    table = scoring.get("normalise")
    normalised = normalised_aggregates(groups, table, scoring) if table else None
    return RunComparison(made, over, cautions, scoring["alpha"], normalised)


def check_comparison(*, about: str, within: Any, alpha: float) -> None:
    """Raise Mistake for options that would have no effect, and for an impossible alpha."""
    if about not in ("tendency", "mean"):
        raise Mistake(f"Unknown about={about!r}. Use tendency or mean.")
    if within is not None and about != "mean":
        raise Mistake("--within has an effect only with --about mean. Add that, or leave it out.")
    if not 0.0 < alpha < 1.0:
        raise Mistake(f"--alpha must lie between 0 and 1; got {alpha}.")


def run_word(run: TrainedRun | str | Path) -> str | Path:
    """Return the folder of a run, or the path as it is given."""
    if not isinstance(run, TrainedRun):
        return run
    if run.path is None:
        raise Mistake(f"{run!r} has no folder. Train it with out=FOLDER.")
    return run.path


def _algorithm_word(each: Any) -> str:
    if not isinstance(each, str):
        raise Mistake(f"until_decided trains algorithms, by their names; got {shown_value(each)}.")
    return each


def _plain(value: Any) -> Any:
    """Return plain values for JSON; numbers that are not finite become null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
