"""What result.json says of the best policies of a run that keeps them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sterling.training.agent import Agent
from sterling.training.steering.best_policy import BestPolicy
from sterling.training.steering.judged_score import LOSS, RETURN
from sterling.training.trained_run import TrainedRun


def best_result(
    best: BestPolicy, run: TrainedRun, held_out: Callable[[Agent], dict[str, Any]]
) -> dict[str, Any]:
    """Return how the best policies were chosen, and their scores in a new evaluation.

    ``chosen_return`` is the largest of several noisy numbers, which is too high on average; so the
    best policies are evaluated again in ``final``, in other episodes. The loss on texts that the
    run holds out (``held_out``) is measured without noise, but chosen by the same texts.
    """
    if best.score is LOSS:
        found, unended = held_out(best.agent), [0] * len(best.steps)
    else:
        found = run.best.evaluate(run.settings.evaluate_episodes)
        unended = found.pop("unended")
    highest = best.score.words[0]
    return {
        "chosen_by": f"the {highest} {best.score.name} of each seed's periodic evaluations",
        "progress": list(best.steps),  # steps (or updates) of each seed's best policy
        best.score.chosen: list(best.scores),
        "unended": unended,
        "final": found,
    }


def merge_best_results(
    results: Sequence[dict[str, Any]],
    interleave: Callable[[Sequence[Sequence[Any]]], list[Any]],
    estimate: Callable[[str, Sequence[dict[str, Any]]], dict[str, Any]],
) -> dict[str, Any]:
    """Merge what the results of several processes say of their best policies; {} if nothing."""
    if not any("best" in result for result in results):
        return {}
    parts = [result.get("best", {"final": {}}) | {"seeds": result["seeds"]} for result in results]

    def per_seed(name: str) -> list[Any]:
        return interleave([part.get(name, [None] * len(part["seeds"])) for part in parts])

    known = (RETURN.chosen, LOSS.chosen)
    chosen = [name for name in known if any(name in part for part in parts)]
    measured = dict.fromkeys(name for part in parts for name in part["final"])
    return {
        "best": {
            "chosen_by": next(part["chosen_by"] for part in parts if "chosen_by" in part),
            **{name: per_seed(name) for name in ("progress", *chosen)},
            "unended": [count or 0 for count in per_seed("unended")],
            "final": {name: estimate(name, parts) for name in measured},
        }
    }
