"""Train more seeds until it is decided which algorithm is better, or a maximum is reached.

    <folder>/question.json            the question; another question is refused (an older study
                                      that compared means continues, decided by tendency)
    <folder>/<label>/<look>/          run folders: the seeds that were trained for one look
    <folder>/decision.json            the decisions so far (statistics.compare)

Every look trains a few new seeds of every algorithm whose comparisons are not all decided. Each
label has its own seeds, so that the compared runs are independent. Each look is a run folder, so a
stopped study resumes exactly when the same command is run again.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sterling.report.live.metric_sinks import Sink
from sterling.report.runs.checked_run_files import check_run
from sterling.statistics import Headline, compare, headline
from sterling.statistics.comparisons.comparison_result import Comparison
from sterling.statistics.scores.score_table import FailedRule
from sterling.system.atomic_files import explain_write_errors, is_empty
from sterling.system.shown_values import shown_value
from sterling.training.api import resume, train
from sterling.training.assembly.build_run import build_first_phase
from sterling.training.evaluation.scored_channel import bounds_and_direction
from sterling.training.runtime.signals import EXIT_RESUMABLE
from sterling.training.saving import run_folder
from sterling.training.until_decided.decision_question import (
    SEED_DISTANCE,
    Contender,
    Question,
    check_question,
    contender_settings,
    with_score_declaration,
)
from sterling.types import Mistake

OLD_DEFAULTS = {"about": "tendency", "within": None}  # defaults for studies older than these fields
OLD_DEFAULTS |= {"metric": "return", "direction": "higher"}

SinkMaker = Callable[[Contender, Sequence[int]], Sequence[Sink]]


def until_decided(question: Question, path: str | Path, watch: SinkMaker | None = None) -> Any:
    """Train until decided and return the ``statistics.Comparison``; ``watch`` returns the sinks of
    each training.

    Raise Mistake for an invalid question, for a folder that holds another question, and if a seed
    failed and ``failed`` does not say what it counts as; SystemExit 75 when stopped.
    """
    path = Path(path)
    question = _check_question(question, path)
    with explain_write_errors(path):
        _open_study(question, path)
    while True:
        scores = {each.label: final_scores(path / each.label, question.metric)
                  for each in question.contenders}  # fmt: skip
        failed_count = sum(not math.isfinite(score) for found in scores.values() for score in found)
        if failed_count and question.failed is None:
            raise Mistake(
                f"{failed_count} seeds failed. Run the same command again with the score of a "
                "failed seed: --failed SCORE (in Python failed=SCORE)."
            )
        comparison = _compare_scores(question, scores)
        run_folder.write_json(path / "decision.json", comparison.to_json())
        if comparison.finished:
            return comparison
        for each in question.contenders:
            if comparison.next_runs.get(each.label):
                _train_look(question, each, path, watch)


def _compare_scores(question: Question, scores: Mapping[str, Sequence[float]]) -> Comparison:
    """Compare the scores so far."""
    sign = -1.0 if question.direction == "lower" else 1.0
    low, high = question.within or (None, None)
    negated_bounds = (None if high is None else -high, None if low is None else -low)
    made = compare(
        {label: [sign * score for score in found] for label, found in scores.items()},
        alpha=question.alpha,
        interims=question.max_looks,
        per_interim=question.per_look,
        failed=_flip_sign(question.failed, sign),
        key=question.key,
        about=question.about,
        within=negated_bounds if sign < 0.0 and question.within else question.within,
    )
    if sign > 0.0:
        return made
    return dataclasses.replace(
        made, decisions=tuple(one.in_original_units() for one in made.decisions)
    )


def _flip_sign(failed: FailedRule, sign: float) -> FailedRule:
    return sign * failed if isinstance(failed, int | float) else failed


def _train_look(question: Question, each: Contender, path: Path, watch: SinkMaker | None) -> None:
    """Train a contender's next seeds, or resume their training."""
    look = len(_finished_runs(path / each.label))
    first = question.contenders.index(each) * SEED_DISTANCE + look * question.per_look
    seeds = list(range(first, first + question.per_look))
    out = path / each.label / f"{look:02d}"
    sinks = watch(each, seeds) if watch else ()
    if (out / "config.json").exists():
        resume(out, sinks=sinks, quiet=True)
    else:
        options = {**question.options, **each.fields, "steps": question.steps, "seeds": seeds}
        train(
            each.algorithm, question.environment, out=out, sinks=sinks, **{"quiet": True, **options}
        )
    if run_folder.read_result(out) is None:  # no disk space for its result, as a notice has said
        raise SystemExit(EXIT_RESUMABLE)


def final_scores(path: Path, metric: str = "return") -> list[float]:
    """Return the final score of every seed so far, oldest first; NaN for failed seeds."""
    found: list[float] = []
    for run in _finished_runs(path):
        result = run_folder.read_result(run) or {}
        check_run(run, {}, result, [])
        made, seeds = result.get("final", {}).get(metric, {}), result.get("seeds", [])
        per_seed = made.get("per_seed", [None] * len(seeds))
        found += [float("nan") if score is None else score for score in per_seed]
    return found


def _finished_runs(path: Path) -> list[Path]:
    return sorted(each.parent for each in path.glob("*/result.json"))


def standings(question: Question, path: Path) -> dict[str, Headline]:
    """Return the headline estimate of each contender's final scores so far."""
    settings = list(contender_settings(question).values())
    within, better = bounds_and_direction(question.metric, settings)
    how: Any = {"failed": question.failed, "within": within, "better": better}
    found = {
        each.label: final_scores(path / each.label, question.metric) for each in question.contenders
    }
    return {label: headline(scores, **how) for label, scores in found.items()}


def _check_question(question: Question, path: Path) -> Question:
    """Return the question with the bounds and direction that its world declares.

    All errors are raised before training: contenders without a run in ``path`` are built in their
    world once, to check that they fit.
    """
    check_question(question)
    settings = contender_settings(question)
    question = with_score_declaration(question, list(settings.values()))
    _compare_scores(
        question, {label: [] for label in settings}
    )  # raises if no decision is possible
    for label, each in settings.items():
        if not (path / label).exists():
            build_first_phase(each, warm=False).source.close()
    return question


def _open_study(question: Question, path: Path) -> None:
    """Write the question to the folder, or check that the folder holds the same question."""
    new = json.loads(json.dumps(dataclasses.asdict(question)))
    file = path / "question.json"
    if not file.exists():
        path.mkdir(parents=True, exist_ok=True)
        if not is_empty(path):
            raise Mistake(f"{path} holds other files. Choose another folder.")
        run_folder.write_json(file, new)
        return
    old = run_folder.read_json(file)
    if not isinstance(old, dict):
        raise Mistake(f"{file} must hold a JSON object, not {shown_value(old)}. Restore it.")
    before = OLD_DEFAULTS | old
    differs = [name for name in new if new[name] != before.get(name)]
    if differs == ["failed"] and before.get("failed") is None:  # added after a seed had failed
        run_folder.write_json(file, new)
    elif differs:
        raise Mistake(
            f"{path} holds another question ({', '.join(differs)} differ). Choose another folder."
        )
