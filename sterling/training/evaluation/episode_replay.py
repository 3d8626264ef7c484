"""Play evaluation episodes again, to get steps that were not recorded.

In worlds that can be traced, evaluation records no steps: it is one compiled program, which would
take longer. Its episodes are the same every time, so they are played again when someone asks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import jax.numpy as jnp
import numpy as np

from sterling.report.episodes.episodes_file import EpisodeId, EvaluatedEpisodes
from sterling.training.evaluation.episode_recorder import EpisodeRecorder
from sterling.training.evaluation.evaluate_policy import evaluate
from sterling.training.evaluation.evaluator import Evaluator
from sterling.training.trained_run import TrainedRun


def replay_episodes(
    run: TrainedRun, made: EvaluatedEpisodes, wanted: Collection[EpisodeId]
) -> tuple[EvaluatedEpisodes, list[EpisodeId]]:
    """Play the evaluation of the final policies again and record the ``wanted`` episodes. Return
    the episodes with these steps, and the wanted ones that went differently: they have no steps.

    Episodes differ in environments with randomness outside Sterling's control, and possibly on
    other hardware.
    """
    judge = Evaluator(run.settings, made.columns["return"].shape[1])
    seeds = list(run.settings.seeds)
    recorder = EpisodeRecorder(seeds, judge.world.spec, wanted)
    try:
        found = evaluate(
            run.agent,
            judge.world,
            jnp.asarray(seeds, jnp.int32),
            made.columns["return"].shape[1],
            run.settings.evaluate_limit,
            recorder=recorder,
            fresh=bool(made.facts.get("fresh")),
        )
    finally:
        judge.close()
    again = dataclasses.replace(made, columns=found)
    other = [which for which in wanted if not is_same_episode(made, again, which)]
    steps = {which: each for which, each in recorder.steps.items() if which not in other}
    return dataclasses.replace(made, steps={**made.steps, **steps}), other


def is_same_episode(made: EvaluatedEpisodes, again: EvaluatedEpisodes, which: EpisodeId) -> bool:
    """Whether an episode has the same length and, up to rounding, the same return."""
    returns = made.value("return", which), again.value("return", which)
    lengths = made.value("length", which), again.value("length", which)
    return lengths[0] == lengths[1] and bool(np.isclose(*returns, rtol=1e-3, atol=1e-4))
