"""A source that plays the levels again from which most is to be learned."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from sterling.actor import Actor
from sterling.equations import level_replay
from sterling.experience.draws import Draws, Wrapped
from sterling.experience.layers import Layer, Numbers
from sterling.experience.level_rollout import LEVEL, LevelRollout
from sterling.experience.rollout import Rollout
from sterling.seeds import over_seeds
from sterling.types import Feed, Mistake, Record, Signals

SLOW = 0.1  # share by which one drawn row moves its level's score, where rows come from a replay


class LevelReplay(Wrapped, eqx.Module):
    """Prioritised level replay (Jiang 2021) around ``source``, which is a
    :class:`~sterling.experience.level_rollout.LevelRollout` or keeps what one lives.

    At the beginning of each iteration the chances of all levels are computed
    (equations/level_replay.py), and hold for the episodes that begin in it. Scores are told by what
    is learned, per seed: rows say their level in ``extras["level"]``, and a learner the rows'
    advantages or TD errors in ``samples``.

    Deviations from the paper: the chances hold for an iteration (they change with every episode
    there), so several envs may begin the same new level; a score is the mean over an iteration's
    rows of a level, whether they are a whole episode or not (as in the authors' code); where rows
    are drawn from a replay, a score moves by a tenth of the way for every row, for a batch holds
    few of any level.
    """

    source: Any
    scores: Float[Array, "seed level"]
    beta: float = eqx.field(static=True)  # temperature of the ranks
    rho: float = eqx.field(static=True)  # share of staleness

    @classmethod
    def create(cls, source: Any, beta: float = 0.1, rho: float = 0.1) -> LevelReplay:
        """Nothing is known of any level."""
        return cls(source, jnp.zeros(_lived(source).edges.shape), beta, rho)

    def collect(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[LevelReplay, Scored]:
        """What ``source`` collects in levels that are chosen by their scores."""
        levels = _lived(self.source)

        def edges(score: Array, last: Array, count: Array) -> Float[Array, "level"]:
            chance = level_replay.chances(score, last, count, beta=self.beta, rho=self.rho)
            return jnp.cumsum(chance)

        # one seed after another: what adds up must not round otherwise beside other seeds
        found = over_seeds("map", edges)(self.scores, levels.last, levels.count)
        told = eqx.tree_at(lambda source: _lived(source).edges, self.source, found)
        source, draws = told.collect(agent, keys)
        return dataclasses.replace(self, source=source), Scored(draws, self.scores)

    def hearing(self, heard: tuple[PyTree, Float[Array, "seed level"]]) -> LevelReplay:
        """With the scores as updates left them."""
        inner, scores = heard
        return dataclasses.replace(self, source=self.source.hearing(inner), scores=scores)


def _lived(source: Any) -> LevelRollout:
    """Where levels are begun, inside all that is around it."""
    while not isinstance(source, LevelRollout):
        source = source.source
    return source


class Scored(eqx.Module):
    """The batches of ``draws``, which score the levels of their rows."""

    draws: Any
    scores: Float[Array, "seed level"]

    @property
    def heard(self) -> tuple[PyTree, Float[Array, "seed level"]]:
        """What updates change of the source, and the scores."""
        return self.draws.heard, self.scores

    def rows(self, feed: Feed) -> int:
        """Rows of one batch."""
        return self.draws.rows(feed)

    def chances(self, feed: Feed, keys: Key[Array, "seed"]) -> PyTree:
        """Those of the batches."""
        draws: Draws = self.draws
        return draws.chances(feed, keys)

    def draw(self, feed: Feed, seed: Int[Array, ""], heard: PyTree, chance: PyTree) -> Record:
        """The next batch."""
        batch: Record = self.draws.draw(feed, seed, heard[0], chance)
        return batch

    def heed(self, feed: Feed, heard: PyTree, signals: Signals, batch: Record) -> PyTree:
        """Tell the source, and score the batch's levels."""
        inner, scores = heard
        inner = self.draws.heed(feed, inner, signals, batch)
        error = signals.samples.get("advantage", signals.samples.get("td_error"))
        if error is None and feed.name:  # another feed's learner may score them
            return inner, scores
        if error is None or error.shape != batch.mask.shape:
            raise Mistake(
                "levels are scored by the learner's samples['advantage'] or samples['td_error'], a "
                "number for each row, and this one returns neither; leave out sources"
            )
        rate = 1.0 if feed.whole else SLOW
        found = level_replay.scored(scores, error, batch.extras[LEVEL], batch.mask, rate)
        return inner, found


def _right(numbers: Numbers) -> bool:
    beta, rho = numbers
    return 0.0 < beta < float("inf") and 0.0 <= rho <= 1.0


def _levels(
    source: Rollout, numbers: Numbers, keys: Key[Array, "seed"], actor: Actor
) -> LevelRollout:
    return LevelRollout.create(source, keys)


LAYER = Layer(
    "plr",
    "prioritised level replay: levels are played again from which most is to be learned",
    (0.1, 0.1),  # of the paper, for Procgen (section 4)
    "plr:0.1,0.3, a temperature above 0 and a share of staleness from 0 to 1",
    right=_right,
    rollouts=_levels,
    whole=lambda source, numbers: LevelReplay.create(source, *numbers),
    keep=(LEVEL,),
    begins=True,
)
