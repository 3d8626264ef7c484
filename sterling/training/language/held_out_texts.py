"""The rows of a file that a run on texts alone holds out, and the learner's loss on them.

What a row asks decides whether it is held out (language/worlds/held_out_questions.py), or all that
it says if it is a plain text: the same rows in every run, whatever its seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from sterling import algorithms
from sterling.experience.language.answer_pairs import PairSource
from sterling.experience.language.imitated_texts import Demonstrations
from sterling.needs.feed import PAIRS
from sterling.seed_axis import over_seeds
from sterling.training.agent import Agent
from sterling.training.config.settings import Settings
from sterling.training.evaluation.final_estimate import channel_failed_score, final_estimate
from sterling.training.evaluation.metric_rows import numbers_or_none
from sterling.training.fields import text_budget
from sterling.training.language import context_length
from sterling.training.language.base_model import language_settings, starting_model
from sterling.training.language.text_world import chat_settings
from sterling.training.phases.phase_sequence import learner_needs
from sterling.types import Mistake, Record

PREFIX = "held_out/"  # of the metrics' names
FUNCTION = "held_out_metrics"  # of an algorithm that can measure them
ACCURACY = "accuracy"  # a metric whose name ends so lies in [0, 1] and is better if higher


def count_held_out(settings: Settings) -> tuple[int, int]:
    """Return how many rows of the run's file are held out, and how many it has. Mistake if there
    are none to measure or none to learn from, or the algorithm cannot measure."""
    speech, algorithm = language_settings(settings), algorithms.find(settings.algorithm)
    if not hasattr(algorithm, FUNCTION):
        raise Mistake(
            f"{settings.title} has no function {FUNCTION}(state, batch), which measures its loss. "
            "Leave out held_out."
        )
    total = text_budget.count_texts(speech.texts)
    count = text_budget.count_held_out(learner_needs(settings), speech.texts, speech.held_out)
    if count in (0, total):
        what, change = ("none", "larger") if not count else ("all", "smaller")
        raise Mistake(
            f"held_out={speech.held_out:g} holds out {what} of the {total:,} rows of "
            f"{Path(speech.texts).name}: what a row asks decides. Give a {change} share."
        )
    return count, total


def held_out_rows(settings: Settings) -> Record:
    """Return all held-out rows of the run's file as one batch ``(row, token)``; of preference pairs
    first the preferred answers, then the rejected ones. Those that are too long are left out."""
    speech, needs = language_settings(settings), learner_needs(settings)
    tokenizer = starting_model(speech.model).tokenizer
    if needs.has_feed(PAIRS):
        pairs = context_length.read_preference_pairs(speech, judging=True, alone=True)
        source = PairSource.create(pairs, needs, tokenizer, speech.context)
        return source.all_pairs()
    voice = chat_settings(settings, tokenizer, settings.context)
    lines, voice = context_length.texts_to_imitate(speech, None, (), voice, judging=True)
    texts = Demonstrations.from_transcripts(lines, voice, needs).texts
    assert texts is not None  # None only in a checkpoint
    return texts


class HeldOutTexts:
    """Measures the loss of a run's agents on its held-out rows. Mistake if there are none."""

    def __init__(self, settings: Settings):
        count_held_out(settings)
        self._settings, self._rows = settings, held_out_rows(settings)

    def columns(self, agent: Agent, alive: Bool[np.ndarray, "seed"]) -> dict[str, Any]:
        """Return the columns of a row of metrics, a number for each seed."""
        return {
            PREFIX + name: numbers_or_none(np.asarray(values), alive)
            for name, values in _measure(agent, self._rows).items()
        }

    def estimates(
        self, agent: Agent, alive: Bool[np.ndarray, "seed"], failed: Sequence[int]
    ) -> dict[str, Any]:
        """Return each metric's numbers per seed and their estimate, for ``result.json``."""
        found, seeds = self.columns(agent, alive), self._settings.seeds
        made = {}
        for name, scores in found.items():
            within, better = ((0.0, 1.0), 1) if name.endswith(ACCURACY) else (None, -1)
            rule = channel_failed_score(self._settings.failed, within, better)
            made[name] = final_estimate(scores, seeds, failed, within, rule, better=better)
        return made


@eqx.filter_jit
def _measure(agent: Agent, rows: Record) -> dict[str, Array]:
    """Return the metrics of every seed's learner, ``(seed,)``."""
    algorithm: Any = agent.algorithm

    def of_seed(state: Any) -> dict[str, Array]:
        found = algorithm.held_out_metrics(state, rows)
        return {name: jnp.asarray(value, jnp.float32) for name, value in found.items()}

    measured: dict[str, Array] = over_seeds(agent.strategy, of_seed)(agent.state)
    return measured
