"""Rows of a log with goals to learn to reach: how a log feeds learners that are asked for goals.

A row keeps its observation and action. Its desired goal is one that was achieved in the row
itself, later in its episode, or in a row of the whole log; ``problem/goal_shares.py`` says how
often each (the sampling of OGBench, Park 2025, arXiv:2410.20092). For the goal g of values

    r = 0 and discount 0 where the row has achieved g, otherwise r = -1 and discount 1

so a value is -(1 - gamma^d) / (1 - gamma), d steps from g. The policy's goals are drawn apart.

Deviations from OGBench's code: the last observation of an episode may be a goal too, and a goal is
achieved where the achieved one equals it (there: where it is the same row), which differs in worlds
that are in the same state twice. Future goals begin one step ahead, as there.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import random_keys as named
from sterling.actor import Actor
from sterling.data.dataset import Dataset
from sterling.experience.batch_draws import Due, NoFeedback, StaticSource, every_feed
from sterling.experience.offline.dataset_batches import DatasetSource, PreloadedBatches
from sterling.problem.goal_obs import ACHIEVED, DESIRED, OBSERVATION
from sterling.problem.goal_shares import (
    POLICY_GOAL,
    POLICY_WAY_POINT,
    POLICY_WAY_POINT_OBS,
    WAY_POINT,
    GoalShares,
)
from sterling.types import AnyNeeds, Feed, Record


class GoalChance(eqx.Module):
    """The random numbers of rows ``(..., batch)``: for the goals of values and of the policy each
    which kind of goal, how far ahead, and which row of the log."""

    row: Int[Array, "..."]
    kind: Float[Array, "... two"]
    ahead: Float[Array, "... two"]
    other: Int[Array, "... two"]


class Goals(eqx.Module):
    """Chosen goals: a goal is what was achieved ``ahead`` steps after ``row``."""

    row: Int[Array, "..."]
    ahead: Int[Array, "..."]
    elsewhere: Bool[Array, "..."]  # whether they are goals of the whole log


def choose_goals(
    shares: GoalShares, chance: GoalChance, column: int, left: Int[Array, "..."]
) -> Goals:
    """Return the goals that ``chance`` draws, in its ``column``: 0 of values, 1 of the policy;
    ``left``: how many rows of its episode begin with each row, itself included."""
    kind, draw = chance.kind[..., column], chance.ahead[..., column]
    if shares.gamma:
        steps = jnp.floor(jnp.log1p(-draw) / jnp.log(jnp.float32(shares.gamma)))
    else:
        steps = jnp.floor(draw * left.astype(jnp.float32))
    ahead = 1 + jnp.minimum(steps, (left - 1).astype(jnp.float32)).astype(jnp.int32)
    ahead = jnp.where(kind < shares.current, 0, ahead)
    elsewhere = kind >= shares.current + shares.future
    row = jnp.where(elsewhere, chance.other[..., column], chance.row)
    return Goals(row, jnp.where(elsewhere, 0, ahead), elsewhere)


class GoalBatches(StaticSource, NoFeedback, eqx.Module):
    """Draws rows of a log as :class:`DatasetSource` does, and relabels them with goals.

    ``obs`` and ``next_obs`` have the goal of values, ``extras`` those of the policy; with
    ``ahead`` in the feed's goals also the way points, so many steps ahead: in the row's episode
    (to the end at most), and on the way to the policy's goal (to that at most).
    """

    rows_of_log: DatasetSource
    left: Int[Array, "row"] | None  # rows of its episode from a row on; None in a checkpoint

    @classmethod
    def create(cls, dataset: Dataset, needs: AnyNeeds, sampling: str) -> GoalBatches:
        """Put a log whose observations have goals on the device."""
        ends = np.repeat(np.cumsum(dataset.lengths), dataset.lengths)
        left = jnp.asarray(ends - np.arange(dataset.rows), jnp.int32)
        return cls(DatasetSource.create(dataset, needs, sampling), left)

    @property
    def needs(self) -> AnyNeeds:
        """The learner's."""
        return self.rows_of_log.needs

    @property
    def traced(self) -> bool:
        """Whether drawing can be compiled; False for files larger than memory."""
        return self.rows_of_log.traced

    def collect(
        self, agent: Actor, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[GoalBatches, Any]:
        """Return the source and its draws; for a file larger than memory, read the batches now."""
        return self, self if self.traced else PreloadedBatches.load(self, keys, due)

    def rows(self, feed: Feed) -> int:
        """Return the number of rows in one batch."""
        return self.rows_of_log.rows(feed)

    def presample(self, feed: Feed, keys: Key[Array, "seed"]) -> GoalChance:
        """Draw rows, and the random numbers of their goals, ``(seed, update, batch, ...)``."""
        row = self.rows_of_log.presample(feed, keys)
        shape, most = (*row.shape[1:], 2), self._left.size

        def draw(key: Key[Array, ""]) -> Any:
            kind, ahead, other = named.split(key, "goal", 3)
            numbers = jax.random.uniform(kind, shape), jax.random.uniform(ahead, shape)
            return *numbers, jax.random.randint(other, shape, 0, most, jnp.int32)

        return GoalChance(row, *jax.vmap(draw)(named.fold_each(keys, "relabel")))

    def draw(self, feed: Feed, seed: Int[Array, ""], feedback: None, sample: GoalChance) -> Record:
        """Return rows with their goals."""
        asked, left = feed.goals, self._left[sample.row]
        batch = self.rows_of_log.draw(feed, seed, None, sample.row)
        goal, _ = self._achieved(choose_goals(asked.values, sample, 0, left))
        wanted = choose_goals(asked.policy, sample, 1, left)
        extras = {**batch.extras, POLICY_GOAL: self._achieved(wanted)[0]}
        if asked.ahead:
            at = Goals(sample.row, jnp.minimum(asked.ahead, left), jnp.zeros_like(left, bool))
            extras[WAY_POINT] = self._achieved(at)[0]
            near = jnp.where(wanted.elsewhere, at.ahead, jnp.minimum(at.ahead, wanted.ahead))
            at = dataclasses.replace(at, ahead=near)
            extras[POLICY_WAY_POINT], extras[POLICY_WAY_POINT_OBS] = self._achieved(at)
        return relabelled(dataclasses.replace(batch, extras=extras), goal)

    def to_checkpoint(self) -> GoalBatches:
        """Drop the data: the dataset's file holds it."""
        return GoalBatches(self.rows_of_log.to_checkpoint(), None)

    def from_checkpoint(self, fresh: GoalBatches) -> GoalBatches:
        """Take the data of ``fresh``."""
        return fresh

    @property
    def _left(self) -> Int[Array, "row"]:
        assert self.left is not None  # None only in a checkpoint
        return self.left

    def _achieved(self, goals: Goals) -> tuple[Array, Array]:
        """Return what is achieved and what is observed at the goals."""
        rows = self.rows_of_log.take(goals.row + jnp.maximum(goals.ahead - 1, 0))
        now, later = ((x[ACHIEVED], x[OBSERVATION]) for x in (rows.obs, rows.next_obs))
        here = goals.ahead == 0  # otherwise it is achieved by the step of the row before
        return jax.tree.map(lambda x, y: jnp.where(_like(here, x), x, y), now, later)


def relabelled(batch: Record, goal: Float[Array, "... n"]) -> Record:
    """Return rows that want ``goal``: reward -1 and discount 1 until they have achieved it, then 0
    and 0."""
    same = batch.obs[ACHIEVED] == goal
    reached = same.reshape(*batch.mask.shape, -1).all(-1)
    far = jnp.where(reached, 0.0, 1.0).astype(jnp.float32)
    obs, next_obs = ({**x, DESIRED: goal} for x in (batch.obs, batch.next_obs))
    return dataclasses.replace(batch, obs=obs, next_obs=next_obs, reward=-far, discount=far)


def _like(mask: Bool[Array, "..."], x: Array) -> Bool[Array, "..."]:
    return mask.reshape(*mask.shape, *(1,) * (x.ndim - mask.ndim))


def log_batches(dataset: Dataset, needs: AnyNeeds, sampling: str) -> DatasetSource | GoalBatches:
    """Return the source of a log's batches that ``needs`` ask for."""
    has_goals = any(feed.goals is not None for feed in needs.feeds)
    return (GoalBatches if has_goals else DatasetSource).create(dataset, needs, sampling)
