"""How a student compares with the trained run that it imitated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sterling.training.assembly.guide_policy import load_guides
from sterling.training.evaluation.evaluator import Evaluator
from sterling.training.evaluation.final_estimate import final_estimate
from sterling.training.trained_run import TrainedRun, run_return_bounds


def teacher_comparison(run: TrainedRun) -> dict[str, Any]:
    """Return the teachers' returns in the episodes of the final evaluation ("teacher"), and each
    seed's return minus that of its teacher ("difference"), with intervals over seeds."""
    settings, seeds = run.settings, run.settings.seeds
    assert settings.guide is not None
    judge = Evaluator(settings, settings.evaluate_episodes)
    try:
        teachers = load_guides(settings, Path(settings.guide.path), judge.world)
        returns = [float(x) for x in judge(teachers)["return"].mean(1)]
    finally:
        judge.close()
    own, failed = run.result["final"]["return"]["per_seed"], run.result["failed_seeds"]
    difference = [
        None if x is None else x - teacher for x, teacher in zip(own, returns, strict=True)
    ]
    return {
        "teacher": final_estimate(returns, seeds, [], run_return_bounds(settings)),
        "difference": final_estimate(difference, seeds, failed),
    }
