"""Samples of logged experience: the source of offline learning."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from sterling import keys as named
from sterling.actor import Actor
from sterling.data.dataset import Dataset
from sterling.data.device import Mapped, OnDevice, to_device
from sterling.data.returns import monte_carlo, shares, times, worst
from sterling.equations.value import n_step_return
from sterling.experience.draws import Still, Unheard, keys_of
from sterling.experience.windows import only, within
from sterling.types import AnyArray, AnyNeeds, Feed, Mistake, Record


class Episodes(eqx.Module):
    """Where episodes lie, to draw them in unequal shares."""

    share: Float[Array, "episode"]  # cumulated
    begin: Int[Array, "episode"]
    length: Int[Array, "episode"]

    @classmethod
    def of(cls, dataset: Dataset, sampling: str) -> Episodes | None:
        """None where all rows are drawn alike."""
        share = shares(dataset, sampling)
        if share is None:
            return None
        begin = np.cumsum(dataset.lengths) - dataset.lengths
        whole = (jnp.asarray(x, jnp.int32) for x in (begin, dataset.lengths))
        return cls(jnp.asarray(np.cumsum(share), jnp.float32), *whole)

    def draw(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Int[Array, "..."]:
        """Rows: an episode by its share, and any of its rows."""
        which, where = named.deal(key, "episode", 2)
        drawn = jax.random.uniform(which, shape) * self.share[-1]
        episode = jnp.searchsorted(self.share, drawn, side="right").astype(jnp.int32)
        episode = jnp.minimum(episode, self.share.size - 1)
        within = jax.random.uniform(where, shape) * self.length[episode].astype(jnp.float32)
        return self.begin[episode] + jnp.minimum(within.astype(jnp.int32), self.length[episode] - 1)


class Logged(Still, Unheard, eqx.Module):
    """Draws transitions ``(batch, ...)`` of a dataset, or stretches of it ``(batch, time, ...)``,
    as ``needs`` says; all seeds share the one dataset.

    A drawn row is the start of an n-step window, exactly as in
    :class:`~sterling.experience.replay.Replay`. Padded stretches end in the row that was drawn.
    """

    data: OnDevice | Mapped | None  # None while a run is written: the file holds it already
    returns: Float[Array, "row"] | None  # to the episode's end, where ``needs`` asks for them
    time: Int[Array, "row"] | None  # from the episode's beginning, for stretches
    episodes: Episodes | None
    needs: AnyNeeds = eqx.field(static=True)

    @classmethod
    def create(cls, dataset: Dataset, needs: AnyNeeds, sampling: str = "uniform") -> Logged:
        """Put the dataset on the device where it fits; ``sampling`` is a word of
        :func:`~sterling.data.returns.shares`."""
        asked = (feed.monte_carlo for feed in needs.feeds)
        gammas = {float(each) for each in asked if each is not None}
        returns, time = None, None
        if any(feed.padded for feed in needs.feeds):
            returns = jnp.asarray(monte_carlo(dataset, gammas.pop()))
            time = jnp.asarray(times(dataset))
        elif gammas:
            gamma = gammas.pop()
            returns = jnp.asarray(monte_carlo(dataset, gamma, worst(dataset, gamma)))
        return cls(to_device(dataset), returns, time, Episodes.of(dataset, sampling), needs)

    @property
    def traced(self) -> bool:
        """Whether drawing may be compiled: not from a file that is larger than memory."""
        return isinstance(self.data, OnDevice)

    def collect(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Logged, Logged | InFile]:
        """Nothing is lived; from a file that stays on disk the batches are read here."""
        return self, self if self.traced else InFile.of(self, keys)

    def rows(self, feed: Feed) -> int:
        """Rows of one batch."""
        return self.needs.feed(feed.name).batch

    def chances(self, feed: Feed, keys: Key[Array, "seed"]) -> Int[Array, "seed update batch"]:
        """Which rows begin the windows."""
        shape = (feed.updates, self.rows(feed))

        def choose(key: Key[Array, ""]) -> Int[Array, "update batch"]:
            if self.episodes is not None:
                return self.episodes.draw(key, shape)
            return jax.random.randint(key, shape, 0, self._data.rows, jnp.int32)

        return jax.vmap(choose)(named.fold_each(keys, "sample"))

    def draw(
        self, feed: Feed, seed: Int[Array, ""], heard: None, chance: Int[Array, "..."]
    ) -> Record:
        """The rows' windows as transitions, or the stretches."""
        if feed.padded:
            return self._stretches(chance, feed.length)
        if feed.length:
            steps = jnp.arange(feed.length, dtype=jnp.int32)
            chance = chance[..., None] + steps.reshape((1,) * chance.ndim + (-1,))
        batch = self._transitions(chance, feed)
        if feed.length:  # beyond the end stands the last row again
            batch = dataclasses.replace(batch, mask=batch.mask & (chance < self._data.rows))
        return batch

    def stored(self) -> Logged:
        """What of it is written: nothing that the file holds."""
        return Logged(None, None, None, None, self.needs)

    def restored(self, fresh: Logged) -> Logged:
        """The file's content again."""
        return fresh

    @property
    def _data(self) -> OnDevice | Mapped:
        assert self.data is not None  # only while a run is written
        return self.data

    def _rows(self, index: Int[AnyArray, "..."]) -> Record:
        """Rows, the last one again for what lies beyond the end."""
        return self._data.transitions(jnp.minimum(jnp.asarray(index), self._data.rows - 1))

    def _transitions(self, index: Int[Array, "..."], feed: Feed) -> Record:
        """Windows of rows as transitions, with what else the learner needs of them."""
        first, extras = self._rows(index), {}
        if feed.next_action:
            extras["next_action"] = only(~first.last, self._rows(index + 1).action)
        if self.returns is not None:
            extras["monte_carlo"] = self.returns[index]
        first = dataclasses.replace(first, extras=extras)
        return first if feed.n_step == 1 else self._summed(first, index, feed)

    def _summed(self, first: Record, index: Int[Array, "..."], feed: Feed) -> Record:
        ahead = jnp.arange(feed.n_step, dtype=jnp.int32).reshape((1,) * index.ndim + (-1,))
        window = self._rows(index[..., None] + ahead)
        follows = jnp.concatenate([jnp.ones_like(window.last[..., :1]), ~window.last[..., :-1]], -1)
        follows, gamma = within(feed, follows)
        total, _, steps = n_step_return(window.reward, gamma * window.discount, follows)
        _, discount, _ = n_step_return(window.reward, window.discount, follows)
        final = self._rows(index + steps - 1)
        return dataclasses.replace(
            first,
            reward=total,
            discount=discount * gamma ** (steps - 1).astype(jnp.float32),
            next_obs=final.next_obs,
            last=final.last,
        )

    def _stretches(self, index: Int[Array, "..."], length: int) -> Record:
        """``length`` rows up to the drawn one; before the episode's first row, that row again."""
        assert self.time is not None
        assert self.returns is not None
        back = jnp.arange(1 - length, 1, dtype=jnp.int32).reshape((1,) * index.ndim + (-1,))
        inside = self.time[index][..., None] + back >= 0
        rows = jnp.where(inside, index[..., None] + back, (index - self.time[index])[..., None])
        extras = {"time": self.time[rows], "monte_carlo": self.returns[rows]}
        return dataclasses.replace(self._rows(rows), mask=inside, extras=extras)


class InFile(Unheard, eqx.Module):
    """Batches of a log that is larger than memory, read before the updates."""

    batches: dict[str, Record]  # by feed, ``(seed, update, batch, ...)``

    @classmethod
    def of(cls, logged: Logged, keys: Key[Array, "seed"]) -> InFile:
        """One iteration's batches of every feed."""
        none, batches = jnp.zeros((), jnp.int32), {}
        for feed in logged.needs.feeds:
            index = logged.chances(feed, keys_of(feed, keys))
            batches[feed.name] = logged.draw(feed, none, None, index)
        return cls(batches)

    def rows(self, feed: Feed) -> int:
        """Rows of one batch."""
        return self.batches[feed.name].mask.shape[2]

    def chances(self, feed: Feed, keys: Key[Array, "seed"]) -> Record:
        """The batches."""
        return self.batches[feed.name]

    def draw(self, feed: Feed, seed: Int[Array, ""], heard: None, chance: Record) -> Record:
        """The batch whose turn it is. Raises Mistake where sums change from update to update."""
        if feed.horizon is not None:
            raise Mistake(
                "a log larger than memory is summed before its updates, and the learner's n-step "
                "sums change with each; leave n_step and gamma as they are"
            )
        return chance
