"""Prioritised level replay: a source that replays the levels with the most to learn."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from sterling.actor import Actor
from sterling.equations import level_scores
from sterling.experience.batch_draws import Draws, Due, SourceWrapper, every_feed
from sterling.experience.levels.level_rollout import LEVEL, LevelRollout
from sterling.experience.rollouts.rollout import Rollout
from sterling.experience.source_layers import Layer
from sterling.field_types import Positive, Share
from sterling.seed_axis import over_seeds
from sterling.types import Feed, Mistake, Record, Signals, config

REPLAY_RATE = (
    0.1  # rate at which one row moves its level's score, when rows come from a replay buffer
)


class LevelReplay(SourceWrapper, eqx.Module):
    """Prioritised level replay (Jiang 2021) around ``source``, which is or contains a
    :class:`~sterling.experience.levels.level_rollout.LevelRollout`.

    Before each iteration the probabilities of all levels are computed (equations/level_scores.py);
    they hold for the episodes that begin in it. Learning updates the scores, per seed: rows carry
    their level in ``extras["level"]``, and the learner returns the rows' advantages or TD errors in
    ``samples``.

    Deviations from the paper: the probabilities hold for an iteration (in the paper they change
    with every episode), so several envs may begin the same new level; a score is the mean over an
    iteration's rows of a level, whether or not they are a whole episode (as in the authors' code);
    with a replay buffer each row moves its level's score by a tenth of the difference, because a
    batch holds few rows of any level.
    """

    source: Any
    scores: Float[Array, "seed level"]
    beta: float = eqx.field(static=True)  # temperature of the ranks
    rho: float = eqx.field(static=True)  # weight of staleness

    @classmethod
    def create(cls, source: Any, beta: float = 0.1, rho: float = 0.1) -> LevelReplay:
        """Create the source without scores."""
        return cls(source, jnp.zeros(_find_level_rollout(source).edges.shape), beta, rho)

    def collect(
        self, agent: Actor, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[LevelReplay, LevelScoringDraws]:
        """Collect with ``source``, in levels chosen by their scores."""
        levels = _find_level_rollout(self.source)

        def edges(score: Array, last: Array, count: Array) -> Float[Array, "level"]:
            chance = level_scores.level_probabilities(
                score, last, count, beta=self.beta, rho=self.rho
            )
            return jnp.cumsum(chance)

        # one seed after another, so that sums round the same however many seeds there are
        found = over_seeds("map", edges)(self.scores, levels.last, levels.count)
        told = eqx.tree_at(lambda source: _find_level_rollout(source).edges, self.source, found)
        source, draws = told.collect(agent, keys, due)
        return dataclasses.replace(self, source=source), LevelScoringDraws(draws, self.scores)

    def with_feedback(self, feedback: tuple[PyTree, Float[Array, "seed level"]]) -> LevelReplay:
        """Return the source with the scores that updates changed."""
        inner, scores = feedback
        return dataclasses.replace(self, source=self.source.with_feedback(inner), scores=scores)


def _find_level_rollout(source: Any) -> LevelRollout:
    """Return the :class:`LevelRollout` inside ``source``."""
    while not isinstance(source, LevelRollout):
        source = source.source
    return source


class LevelScoringDraws(eqx.Module):
    """The batches of ``draws``; learning from them updates the levels' scores."""

    draws: Any
    scores: Float[Array, "seed level"]

    @property
    def feedback(self) -> tuple[PyTree, Float[Array, "seed level"]]:
        """Return the inner source's state that updates change, and the scores."""
        return self.draws.feedback, self.scores

    def rows(self, feed: Feed) -> int:
        """Return the number of rows in one batch."""
        return self.draws.rows(feed)

    def presample(self, feed: Feed, keys: Key[Array, "seed"]) -> PyTree:
        """Return the inner draws' random numbers."""
        draws: Draws = self.draws
        return draws.presample(feed, keys)

    def draw(self, feed: Feed, seed: Int[Array, ""], feedback: PyTree, sample: PyTree) -> Record:
        """Return the next batch."""
        batch: Record = self.draws.draw(feed, seed, feedback[0], sample)
        return batch

    def heed(self, feed: Feed, feedback: PyTree, signals: Signals, batch: Record) -> PyTree:
        """Pass the signals on, and update the scores of the batch's levels."""
        inner, scores = feedback
        inner = self.draws.heed(feed, inner, signals, batch)
        error = signals.samples.get("advantage", signals.samples.get("td_error"))
        if error is None and feed.name:  # another feed may score the levels
            return inner, scores
        if error is None or error.shape != batch.mask.shape:
            raise Mistake(
                "level replay scores levels by the learner's samples['advantage'] or "
                "samples['td_error'] per row, but this learner returns neither; leave out sources"
            )
        rate = 1.0 if feed.whole else REPLAY_RATE
        found = level_scores.updated_scores(scores, error, batch.extras[LEVEL], batch.mask, rate)
        return inner, found


@config
class Config:
    """The options of ``plr``: the paper's values for Procgen (section 4)."""

    temperature: Positive = 0.1  # of the ranks
    staleness: Share = 0.1  # weight of how long ago a level was played


def _make_level_rollout(
    source: Rollout, config: Config, keys: Key[Array, "seed"], actor: Actor
) -> LevelRollout:
    return LevelRollout.create(source, keys)


LAYER = Layer(
    "plr",
    "prioritised level replay: replay the levels with the most to learn",
    Config,
    rollouts=_make_level_rollout,
    whole=lambda source, config: LevelReplay.create(source, config.temperature, config.staleness),
    keep=(LEVEL,),
    begins=True,
)
