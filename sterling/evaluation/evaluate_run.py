"""Evaluate runs: what ``sterling evaluate`` and ``sterling.evaluate`` do."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterling.evaluation.run_evaluation import (
    DEFAULT_EPISODES,
    LANGUAGE_OPTIONS,
    Evaluation,
    check_options,
    chosen_policies,
    compare_with_log,
    estimate_from_log,
    evaluate_returns,
    existing,
    open_run,
    training_log,
)
from sterling.evaluation.run_ranking import Ranking, rank_runs
from sterling.needs.goal_rows import draws_goals
from sterling.training.trained_run import TrainedRun

if TYPE_CHECKING:
    from sterling.evaluation.language.solve_rates import Judgement


def evaluate(
    run: TrainedRun | str | Path | Sequence[TrainedRun | str | Path],
    *,
    episodes: int | None = None,
    evaluate_limit: int | None = None,
    phase: int | None = None,
    return_within: Any = None,
    failed: Any = None,
    data: str | Path | None = None,
    method: str | None = None,
    gamma: float = 0.99,
    updates: int | None = None,
    policy: str | None = None,
    behaviour: str | None = None,
    beside: Sequence[TrainedRun | str | Path] | None = None,
    samples: int | None = None,
    problems: int | None = None,
    levels: str | None = None,
) -> Evaluation | Judgement | Ranking:
    """Evaluate a trained policy, in its environment or from a dataset.

    Args:
        run: a run's folder, or a run that was trained or loaded; a list of several ranks them.
        episodes: episodes per seed (20).
        evaluate_limit: steps after which an episode is cut, with its return so far; None: the
            run's own limit.
        phase: evaluate in the environment of this phase, from 1 on; None: the last.
        return_within, failed: as in ``sterling.train``.
        data: a dataset, to compare with or to estimate from; None: the one that the run was
            trained from, if it was and the file is still there.
        method: estimate the return from the dataset alone: fqe, model, is, wis, pdis, wpdis, dr
            or wdr (docs/offpolicy.md); ``gamma``, ``updates``, ``policy`` ("sampled" or "mode")
            and ``behaviour`` ("logged" or "cloned") belong to it.
        policy: "last" (the default), "best" of a run with ``keep="best"``, or "prior", a planner's
            without planning; or as above.
        beside, samples, problems, levels: for a language model: other runs on the same problems,
            answers to each problem (16), problems per seed (64), levels of difficulty. One of them
            asks for pass@k, and the result is a
            :class:`~sterling.evaluation.language.solve_rates.Judgement`.

    Returns:
        An :class:`Evaluation`, or a Judgement; for several runs a
        :class:`~sterling.evaluation.run_ranking.Ranking`. All have ``to_json()``.

    Raises:
        Mistake: options that do not belong together or to this kind of run.
    """
    options = {name: value for name, value in locals().items() if name != "run"}
    if not isinstance(run, TrainedRun | str | Path):
        return rank_runs(run, options)
    found, options = chosen_policies(open_run(run, phase), options)
    check_options(found, options)
    if any(options[name] is not None for name in LANGUAGE_OPTIONS):
        from sterling.evaluation.language import solve_rates

        kept = {name: options[name] for name in ("samples", "problems", "levels")}
        given: Any = {name: value for name, value in kept.items() if value is not None}
        return solve_rates.judge(found, beside or (), **given)
    path = Path(data) if data is not None else existing(training_log(found))
    if method is not None:
        return estimate_from_log(found, path, options)
    count = DEFAULT_EPISODES if episodes is None else episodes
    if path is not None and (data is not None or not draws_goals(found.agent.needs)):
        return compare_with_log(found, path, count, evaluate_limit)
    how = {"limit": evaluate_limit, "failed": failed, "return_within": return_within}
    return evaluate_returns(found, count, how)


EVALUATE_ARGUMENTS = tuple(inspect.signature(evaluate).parameters)  # as on the command line
