"""A source that has pairs of stretches of its replay compared, and keeps the answers."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from sterling import keys as named
from sterling.experience import labellers
from sterling.experience.draws import Draws, Wrapped
from sterling.experience.replay import Replay
from sterling.experience.room import check_room
from sterling.experience.storage import Place, Ring
from sterling.experience.windows import uniform
from sterling.needs import LABELS
from sterling.nets.heads import Actions
from sterling.types import Action, AnyNeeds, Feed, Mistake, Needs, Obs, Record, Signals

TRIES = 8  # stretches drawn for each that is wanted: some cross an episode's end


class Pairs(eqx.Module):
    """What was compared, ``(seed, pair, 2, time, ...)``, and the answers. The world's rewards are
    not kept: who learns from answers must not see them."""

    obs: Obs
    action: Action
    label: Float[Array, "seed pair"]  # 0: the first was preferred, 1: the second, 0.5: neither
    count: Int[Array, "seed"]  # answers so far

    def at(self, seed: Int[Array, ""], pair: Int[Array, "batch"]) -> Record:
        """Pairs of a seed as a record ``(batch, 2, time, ...)``; its rows say nothing of rewards.
        Where ``pair`` is negative it has ``mask`` False."""
        place = jnp.maximum(pair, 0)
        obs, action, label = jax.tree.map(
            lambda x: x[seed, place], (self.obs, self.action, self.label)
        )
        shape = jax.tree.leaves(obs)[0].shape[:3]
        known = jnp.broadcast_to((pair >= 0)[:, None, None], shape)
        zero = jnp.zeros(shape)
        return Record(obs, action, zero, zero + 1.0, obs, ~known, known, {"preference": label})


class Preferences(Wrapped, eqx.Module):
    """At each visit asks a labeller about pairs of stretches of ``source``, until there are as many
    answers as the feed's ``labels`` ask for.

    A stretch is of one episode; stretches are drawn uniformly. Each seed has answers of its own.
    """

    source: Replay
    pairs: Pairs
    feed: Feed = eqx.field(static=True)

    @classmethod
    def create(cls, source: Replay, feed: Feed) -> Preferences:
        """Nothing was asked yet. Raises :class:`Mistake` for a labeller that is not known."""
        own: Any = feed.labels
        labellers.find(own.labeller)
        world = source.world
        shape = (world.seeds, own.most, 2, own.segment)

        def pairs() -> Pairs:
            obs = jax.tree.map(
                lambda x: jnp.zeros((*shape, *x.shape[2:]), x.dtype), source.source.obs
            )
            action = Actions.of(world.spec.action).nothing(shape)
            zeros = jnp.zeros(shape[:2])
            return Pairs(obs, action, zeros, jnp.zeros(world.seeds, jnp.int32))

        check_room(own.most, pairs, "most_labels")
        return cls(source, pairs(), feed)

    @property
    def visits(self) -> int:
        """Iterations between two visits."""
        own: Any = self.feed.labels
        return int(own.every)

    def visit(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[Preferences, Any]:
        """Have pairs compared."""
        own: Any = self.feed.labels
        count = np.asarray(self.pairs.count)
        if (count >= own.most).all():
            return self, agent
        found = _stretches(self.source.ring, own, named.fold_each(keys, "pairs"))
        below = named.fold_each(keys, "mistakes")
        chance = jax.vmap(lambda key: jax.random.uniform(key, (own.queries,)))(below)
        found, wrong = jax.device_get((found, chance < own.mistakes))
        stored = jax.tree.map(np.array, self.pairs)
        for seed in range(len(count)):
            _ask(stored, found, wrong, seed, own)
        return dataclasses.replace(self, pairs=jax.tree.map(jnp.asarray, stored)), agent

    def collect(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[Preferences, Compared]:
        """What ``source`` collects; the answers are those there are."""
        source, draws = self.source.collect(agent, keys)
        return dataclasses.replace(self, source=source), Compared(draws, self.pairs)


class Compared(eqx.Module):
    """Batches of a replay, and of pairs that were compared."""

    draws: Any
    pairs: Pairs

    heard = property(lambda self: self.draws.heard, doc="What updates change of the source.")

    def rows(self, feed: Feed) -> int:
        """Rows of one batch."""
        return feed.batch if feed.of == LABELS else self.draws.rows(feed)

    def chances(self, feed: Feed, keys: Key[Array, "seed"]) -> PyTree:
        """Those of the replay; or which pairs, -1 where there are none."""
        if feed.of != LABELS:
            draws: Draws = self.draws
            return draws.chances(feed, keys)
        shape = (feed.updates, feed.batch)

        def each(key: Key[Array, ""], count: Int[Array, ""]) -> Int[Array, "update batch"]:
            pair = jax.random.randint(key, shape, 0, jnp.maximum(count, 1), jnp.int32)
            return jnp.where(count > 0, pair, -1)

        return jax.vmap(each)(named.fold_each(keys, "labels"), self.pairs.count)

    def draw(self, feed: Feed, seed: Int[Array, ""], heard: PyTree, chance: PyTree) -> Record:
        """One update's batch."""
        if feed.of == LABELS:
            return self.pairs.at(seed, chance)
        batch: Record = self.draws.draw(feed, seed, heard, chance)
        return batch

    def heed(self, feed: Feed, heard: PyTree, signals: Signals, batch: Record) -> PyTree:
        """Tell the replay of its own rows."""
        return heard if feed.of == LABELS else self.draws.heed(feed, heard, signals, batch)


def unlabelled(needs: AnyNeeds) -> AnyNeeds:
    """What is needed of the replay alone."""
    if not needs.of(LABELS):
        return needs
    feeds = tuple(feed for feed in needs.feeds if feed.of != LABELS)
    return Needs(needs.collect, feeds, needs.capacity, needs.warmup, needs.keep)


def _stretches(
    ring: Ring, own: Any, keys: Key[Array, "seed"]
) -> tuple[Record, Bool[Array, "seed try"]]:
    """Stretches drawn from the replay, ``(seed, try, time, ...)``, and which are of one episode."""
    number = uniform(ring, own.segment, (1, 2 * TRIES * own.queries), keys)[:, 0]
    start, envs = jnp.maximum(number, 0), ring.words.shape[2]
    place = Place.of_all(start // envs, start % envs).ahead(own.segment, ring.rows)
    reward, discount, last, mask = ring.scalars(place)
    whole = mask.all(-1) & ~last[..., :-1].any(-1) & (number >= 0)
    obs = ring.obs(place)
    return Record(obs, ring.action(place), reward, discount, obs, last, mask), whole


def _ask(pairs: Pairs, found: Any, wrong: np.ndarray, seed: int, own: Any) -> None:
    """One seed's questions; the answers are written into ``pairs``, of NumPy arrays."""
    labeller, rows = labellers.find(own.labeller), found[0]
    whole = np.flatnonzero(found[1][seed])
    count = int(pairs.count[seed])
    asked = min(own.queries, own.most - count, len(whole) // 2)
    both = whole[: 2 * asked].reshape(asked, 2)
    slots = slice(count, count + asked)
    for slot, (first, second) in enumerate(both.tolist(), count):
        label = float(labeller(_stretch(rows, seed, first), _stretch(rows, seed, second)))
        if label not in (0.0, 0.5, 1.0):
            raise Mistake(f"labeller={own.labeller!r} answered {label}; answer 0, 1 or 0.5")
        turned = wrong[seed, slot - count]
        pairs.label[seed, slot] = 1.0 - label if turned else label
    for kept, drawn in ((pairs.obs, rows.obs), (pairs.action, rows.action)):
        for old, new in zip(jax.tree.leaves(kept), jax.tree.leaves(drawn), strict=True):
            old[seed, slots] = new[seed, both]
    pairs.count[seed] = count + asked


def _stretch(rows: Record, seed: int, at: int) -> Record:
    """What a labeller is shown."""
    one: Record = jax.tree.map(lambda x: x[seed, at], rows)
    return one
