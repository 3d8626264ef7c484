"""Batches of a dataset: the source of offline learning."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Shaped, UInt32

from sterling import random_keys as named
from sterling.actor import Actor
from sterling.data.dataset import Dataset
from sterling.data.device_dataset import DeviceDataset, HostDataset, to_device
from sterling.data.episode_returns import (
    lowest_continuation,
    monte_carlo_returns,
    steps_into_episode,
    steps_to_episode_end,
)
from sterling.equations.sequence_rows import unbroken
from sterling.equations.value_losses import n_step_return
from sterling.experience import beside_rows
from sterling.experience.batch_draws import Due, NoFeedback, StaticSource, every_feed
from sterling.experience.offline.episode_sampler import EpisodeSampler
from sterling.experience.offline.log_columns import (
    KeptColumn,
    index_tasks,
    kept_columns,
    kept_totals,
)
from sterling.experience.offline.preloaded_batches import PreloadedBatches
from sterling.experience.replay.n_step_windows import rows_to_sum, sum_over_window, zero_unless
from sterling.experience.task_index import TaskIndex
from sterling.needs.feed import MASK, PAD
from sterling.problem.agent_axis import cut_off_alone
from sterling.types import AnyArray, AnyNeeds, Feed, Record, SameTask, Spec


class DatasetSource(StaticSource, NoFeedback, eqx.Module):
    """Draws transitions ``(batch, ...)`` of a dataset, or sequences ``(batch, time, ...)``, as
    ``needs`` asks; all seeds share the dataset.

    A drawn row is the start of an n-step window, exactly as in
    :class:`~sterling.experience.replay.replay_buffer.Replay`. Padded sequences end in the drawn
    row.
    """

    data: DeviceDataset | HostDataset | None  # None in a checkpoint: the file holds it
    # discounted return to the episode's end, if ``needs`` asks for it
    returns: Float[Array, "row"] | None
    time: Int[Array, "row"] | None  # step within the episode, for padded sequences
    episodes: EpisodeSampler | None
    needs: AnyNeeds = eqx.field(static=True)
    left: Int[Array, "row"] | None = None  # rows of its episode from a row on, for later rows
    # for rows of the same task, by the name of the column: their index, and each row's task
    tasks: dict[str, tuple[TaskIndex, UInt32[Array, "row"]]] = eqx.field(default_factory=dict)
    kept: tuple[KeptColumn, ...] = eqx.field(static=True, default=())  # columns that batches have
    team: bool = eqx.field(static=True, default=False)  # whether several agents act in a row
    totals: dict[str, Shaped[Array, "row ..."]] = eqx.field(default_factory=dict)  # of ``keep``

    @classmethod
    def create(
        cls,
        dataset: Dataset,
        needs: AnyNeeds,
        sampling: str = "uniform",
        spec: Spec | None = None,
    ) -> DatasetSource:
        """Put the dataset on the device if it fits; ``sampling`` is a word of
        :func:`~sterling.data.episode_returns.shares`. The problem's ``spec`` says which columns are
        channels, and whether several agents act."""
        known = dataset, tuple(needs.keep), {} if spec is None else spec.channels
        kept, totals = kept_columns(*known), kept_totals(*known)
        team = spec is not None and spec.agents is not None
        asked = (feed.monte_carlo for feed in needs.feeds)
        gammas = {float(each) for each in asked if each is not None}
        returns, time = None, None
        padded = any(feed.edge == PAD for feed in needs.feeds)
        if padded:
            time = jnp.asarray(steps_into_episode(dataset))
        if gammas:
            gamma = gammas.pop()
            rest = 0.0 if padded else lowest_continuation(dataset, gamma)
            returns = jnp.asarray(monte_carlo_returns(dataset, gamma, rest, team))
        left = None
        if any(feed.own_beside for feed in needs.feeds):
            left = jnp.asarray(steps_to_episode_end(dataset))
        sampler = EpisodeSampler.from_dataset(dataset, sampling)
        names = {name for feed in needs.feeds for name in feed.tasks}
        tasks = {name: index_tasks(dataset, name) for name in sorted(names)}
        data = to_device(dataset)
        return cls(data, returns, time, sampler, needs, left, tasks, kept, team, totals)

    @property
    def traced(self) -> bool:
        """Whether drawing can be compiled; False for files larger than memory."""
        return isinstance(self.data, DeviceDataset)

    @property
    def summed(self) -> tuple[str, ...]:
        """Return the kept columns that n-step returns sum, as they do rewards."""
        return tuple(each.name for each in self.kept if each.summed)

    def collect(
        self, agent: Actor, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[DatasetSource, DatasetSource | PreloadedBatches]:
        """Return the source and its draws; for a file larger than memory, read the batches now."""
        return self, self if self.traced else PreloadedBatches.load(self, keys, due)

    def starts(
        self, count: int, keys: Key[Array, "seed"]
    ) -> tuple[Record, Bool[Array, "seed count"]]:
        """Return rows to roll a model out from, and which of them are experience: all."""
        rows = self.take(self.choose((1, count), keys)[:, 0])
        return rows, rows.mask

    def rows(self, feed: Feed) -> int:
        """Return the number of rows in one batch."""
        return self.needs.feed(feed.name).batch

    def presample(self, feed: Feed, keys: Key[Array, "seed"]) -> Any:
        """Draw the windows' first rows, and the random numbers of rows beside them."""
        own = self.needs.feed(feed.name)
        rows = self.choose((own.updates, own.batch), named.fold_each(keys, "sample"))
        if not own.own_beside:
            return rows
        return rows, beside_rows.presample(own, keys, self.choose, partial(self._of_tasks, rows))

    def _of_tasks(
        self, row: Int[Array, "seed update batch"], law: SameTask, keys: Key[Array, "seed"]
    ) -> Int[Array, "seed update batch rows"]:
        index, task = self.tasks[law.task]
        return jax.vmap(lambda row, key: index.draw(task[row], law.rows, key))(row, keys)

    def choose(self, shape: tuple[int, ...], keys: Key[Array, "seed"]) -> Int[Array, "seed ..."]:
        """Draw rows of the log for every seed, with the probabilities that ``sampling`` names."""

        def draw(key: Key[Array, ""]) -> Int[Array, "..."]:
            if self.episodes is not None:
                return self.episodes.draw(key, shape)
            return jax.random.randint(key, shape, 0, self._data.rows, jnp.int32)

        return jax.vmap(draw)(keys)

    def draw(self, feed: Feed, seed: Int[Array, ""], feedback: None, sample: Any) -> Record:
        """Return the drawn windows as transitions, or the sequences, with the rows beside them."""
        own = self.needs.feed(feed.name).own_beside
        if not own:
            return self._drawn(feed, sample)
        row, chances = sample
        found = beside_rows.rows_beside(own, row, chances, self)
        return dataclasses.replace(self._drawn(feed, row), beside=found)

    def _drawn(self, feed: Feed, sample: Int[Array, "..."]) -> Record:
        drawn = {"place": sample} if "place" in feed.add else {}
        if feed.edge == PAD:
            batch = self._stretches(sample, feed)
            return dataclasses.replace(batch, extras=batch.extras | drawn)
        if feed.length:
            steps = jnp.arange(feed.length, dtype=jnp.int32)
            sample = sample[..., None] + steps.reshape((1,) * sample.ndim + (-1,))
        batch = self._transitions(sample, feed)
        if feed.length:  # rows beyond the end repeat the last row
            mask = batch.mask & (sample < self._data.rows)
            mask = unbroken(self.take(sample).last, mask) if feed.edge == MASK else mask
            batch = dataclasses.replace(batch, mask=mask)
        return dataclasses.replace(batch, extras=batch.extras | drawn)

    def to_checkpoint(self) -> DatasetSource:
        """Drop the data: the dataset's file holds it."""
        return DatasetSource(None, None, None, None, self.needs)

    def from_checkpoint(self, fresh: DatasetSource) -> DatasetSource:
        """Take the data of ``fresh``."""
        return fresh

    @property
    def _data(self) -> DeviceDataset | HostDataset:
        assert self.data is not None  # None only in a checkpoint
        return self.data

    def take(self, index: Int[AnyArray, "..."]) -> Record:
        """Return rows; indices beyond the end give the last row."""
        index = jnp.minimum(jnp.asarray(index), self._data.rows - 1)
        rows = self._data.transitions(index)
        totals = {name: x[index] for name, x in self.totals.items()}
        return dataclasses.replace(rows, extras=rows.extras | totals) if totals else rows

    def steps_left(self, row: Int[Array, "..."]) -> Int[Array, "..."]:
        """Return how many rows of its episode begin with each row."""
        assert self.left is not None
        return self.left[row]

    def ahead(self, row: Int[Array, "..."], steps: Int[Array, "..."]) -> Int[Array, "..."]:
        """Return the rows so many steps later in the same episode."""
        return row + steps

    def at(self, row: Int[Array, "..."]) -> Record:
        """Return rows with what is kept of them, and the numbers of their tasks."""
        rows = self.take(row)
        made = {name: rows.extras[name] for name in self.tasks} | self._kept(rows)
        return dataclasses.replace(rows, extras=made)

    def _kept(self, rows: Record) -> dict[str, Array]:
        return {each.name: each.values_in(rows) for each in self.kept}

    def _transitions(self, index: Int[Array, "..."], feed: Feed) -> Record:
        """Return the windows as transitions, with the extras that the feed asks for."""
        first = self.take(index)
        extras = self._added(first, index, feed)
        if feed.monte_carlo is not None:
            assert self.returns is not None
            extras["monte_carlo"] = self.returns[index]
        first = dataclasses.replace(first, extras=extras)
        return first if feed.n_step == 1 else self._summed(first, index, feed)

    def _added(self, first: Record, index: Int[Array, "..."], feed: Feed) -> dict[str, Any]:
        """Return the extras of rows that the feed asks for, but for the drawn rows' indices."""
        made: dict[str, Any] = {name: first.extras[name] for name in feed.tasks}
        made |= self._kept(first)
        if "one_step" in feed.add:
            made |= {"reward_now": first.reward, "discount_now": first.discount}
        if "next_action" in feed.add:
            made["next_action"] = zero_unless(~first.last, self.take(index + 1).action)
        return made

    def _summed(self, first: Record, index: Int[Array, "..."], feed: Feed) -> Record:
        ahead = jnp.arange(feed.n_step, dtype=jnp.int32).reshape((1,) * index.ndim + (-1,))
        window = self.take(index[..., None] + ahead)
        goes_on = ~window.last[..., :-1]
        if self.team and (cut := cut_off_alone(window.obs)) is not None:
            goes_on &= ~cut[..., 1:]
        follows = jnp.concatenate([jnp.ones_like(goes_on[..., :1]), goes_on], -1)
        follows, gamma = rows_to_sum(feed, follows)
        factor = gamma * window.discount
        total, _, steps = n_step_return(window.reward, factor, follows)
        _, discount, _ = n_step_return(window.reward, window.discount, follows)
        final = self.take(index + steps - 1)
        summed = {
            each.name: sum_over_window(each.values_in(window), factor, follows)
            for each in self.kept
            if each.summed
        }
        return dataclasses.replace(
            first,
            extras=first.extras | summed,
            reward=total,
            discount=discount * gamma ** (steps - 1).astype(jnp.float32),
            next_obs=final.next_obs,
            last=final.last,
        )

    def _stretches(self, index: Int[Array, "..."], feed: Feed) -> Record:
        """Return the sequences of rows that end in the drawn ones; before an episode's first row,
        that row is repeated and masked."""
        assert self.time is not None
        back = jnp.arange(1 - feed.length, 1, dtype=jnp.int32).reshape((1,) * index.ndim + (-1,))
        inside = self.time[index][..., None] + back >= 0
        rows = jnp.where(inside, index[..., None] + back, (index - self.time[index])[..., None])
        taken = self.take(rows)
        extras = {"time": self.time[rows], **self._added(taken, rows, feed)}
        if feed.monte_carlo is not None:
            assert self.returns is not None
            extras["monte_carlo"] = self.returns[rows]
        return dataclasses.replace(taken, mask=inside, extras=extras)
