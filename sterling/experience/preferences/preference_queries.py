"""A source that has pairs of its replay buffer's segments compared, and stores the labels (RL from
preferences)."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from sterling import random_keys as named
from sterling.experience.batch_draws import Draws, Due, SourceWrapper, every_feed
from sterling.experience.preferences import preference_labellers
from sterling.experience.replay.n_step_windows import sample_windows
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.replay.ring_buffer import Place, Ring
from sterling.experience.store_memory_check import check_memory
from sterling.needs.feed import LABELS
from sterling.nets.action_heads import Actions
from sterling.types import Action, AnyNeeds, Feed, Mistake, Needs, Obs, Record, Signals

DRAWS_PER_SEGMENT = 8  # segments drawn per segment needed, because some cross an episode's end


class LabelledPairs(eqx.Module):
    """Compared pairs of segments, ``(seed, pair, 2, time, ...)``, and their labels.

    The world's rewards are not stored: a learner from preferences must not see them.
    """

    obs: Obs
    action: Action
    label: Float[Array, "seed pair"]  # 0: the first is preferred, 1: the second, 0.5: neither
    count: Int[Array, "seed"]  # labels so far

    def at(self, seed: Int[Array, ""], pair: Int[Array, "batch"]) -> Record:
        """Return pairs of one seed as a record ``(batch, 2, time, ...)`` without rewards; negative
        ``pair`` gives masked rows."""
        place = jnp.maximum(pair, 0)
        obs, action, label = jax.tree.map(
            lambda x: x[seed, place], (self.obs, self.action, self.label)
        )
        shape = jax.tree.leaves(obs)[0].shape[:3]
        known = jnp.broadcast_to((pair >= 0)[:, None, None], shape)
        zero = jnp.zeros(shape)
        return Record(obs, action, zero, zero + 1.0, obs, ~known, known, {"preference": label})


class Preferences(SourceWrapper, eqx.Module):
    """Asks a labeller about pairs of segments of ``source`` at each host visit, up to the feed's
    ``labels.most``.

    A segment lies within one episode; segments are drawn uniformly. Each seed has its own labels.
    """

    source: Replay
    pairs: LabelledPairs
    feed: Feed = eqx.field(static=True)

    @classmethod
    def create(cls, source: Replay, feed: Feed) -> Preferences:
        """Create the source without labels. Raises :class:`Mistake` for an unknown labeller."""
        own: Any = feed.labels
        preference_labellers.find(own.labeller)
        world = source.world
        shape = (world.seeds, own.most, 2, own.segment)

        def pairs() -> LabelledPairs:
            obs = jax.tree.map(
                lambda x: jnp.zeros((*shape, *x.shape[2:]), x.dtype), source.source.obs
            )
            action = Actions.from_space(world.spec.action).nothing(shape)
            zeros = jnp.zeros(shape[:2])
            return LabelledPairs(obs, action, zeros, jnp.zeros(world.seeds, jnp.int32))

        check_memory(own.most, pairs, "most_labels")
        return cls(source, pairs(), feed)

    @property
    def visits(self) -> int:
        """Return the number of iterations between two host visits."""
        own: Any = self.feed.labels
        return int(own.every)

    def visit(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[Preferences, Any]:
        """Have pairs of segments compared by the labeller."""
        own: Any = self.feed.labels
        count = np.asarray(self.pairs.count)
        if (count >= own.most).all():
            return self, agent
        found = _draw_segments(self.source.ring, own, named.fold_each(keys, "pairs"))
        below = named.fold_each(keys, "mistakes")
        chance = jax.vmap(lambda key: jax.random.uniform(key, (own.queries,)))(below)
        found, wrong = jax.device_get((found, chance < own.mistakes))
        stored = jax.tree.map(np.array, self.pairs)
        for seed in range(len(count)):
            _label_pairs(stored, found, wrong, seed, own)
        return dataclasses.replace(self, pairs=jax.tree.map(jnp.asarray, stored)), agent

    def collect(
        self, agent: Any, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[Preferences, PreferenceDraws]:
        """Collect with ``source``; the labels stay as they are."""
        source, draws = self.source.collect(agent, keys, due)
        return dataclasses.replace(self, source=source), PreferenceDraws(draws, self.pairs)


class PreferenceDraws(eqx.Module):
    """Batches of a replay buffer, and batches of labelled pairs."""

    draws: Any
    pairs: LabelledPairs

    feedback = property(
        lambda self: self.draws.feedback, doc="State of the source that updates change."
    )

    def rows(self, feed: Feed) -> int:
        """Return the number of rows in one batch."""
        return feed.batch if feed.of == LABELS else self.draws.rows(feed)

    def presample(self, feed: Feed, keys: Key[Array, "seed"]) -> PyTree:
        """Draw the replay buffer's random numbers, or the pairs' indices (-1 if there are none)."""
        if feed.of != LABELS:
            draws: Draws = self.draws
            return draws.presample(feed, keys)
        shape = (feed.updates, feed.batch)

        def each(key: Key[Array, ""], count: Int[Array, ""]) -> Int[Array, "update batch"]:
            pair = jax.random.randint(key, shape, 0, jnp.maximum(count, 1), jnp.int32)
            return jnp.where(count > 0, pair, -1)

        return jax.vmap(each)(named.fold_each(keys, "labels"), self.pairs.count)

    def draw(self, feed: Feed, seed: Int[Array, ""], feedback: PyTree, sample: PyTree) -> Record:
        """Return one update's batch."""
        if feed.of == LABELS:
            return self.pairs.at(seed, sample)
        batch: Record = self.draws.draw(feed, seed, feedback, sample)
        return batch

    def heed(self, feed: Feed, feedback: PyTree, signals: Signals, batch: Record) -> PyTree:
        """Pass the signals of the replay buffer's own feeds on to it."""
        return feedback if feed.of == LABELS else self.draws.heed(feed, feedback, signals, batch)


def needs_without_labels(needs: AnyNeeds) -> AnyNeeds:
    """Return what the replay buffer must provide: all feeds except those of labels."""
    if not needs.has_feed(LABELS):
        return needs
    feeds = tuple(feed for feed in needs.feeds if feed.of != LABELS)
    return Needs(needs.collect, feeds, needs.capacity, needs.warmup, needs.keep)


def _draw_segments(
    ring: Ring, own: Any, keys: Key[Array, "seed"]
) -> tuple[Record, Bool[Array, "seed try"]]:
    """Draw segments from the replay buffer, ``(seed, try, time, ...)``; also return which lie
    within one episode."""
    number = sample_windows(ring, own.segment, (1, 2 * DRAWS_PER_SEGMENT * own.queries), keys)[:, 0]
    start, envs = jnp.maximum(number, 0), ring.words.shape[2]
    place = Place.of_all(start // envs, start % envs).ahead(own.segment, ring.rows)
    reward, discount, last, mask = ring.scalars(place)
    whole = mask.all(-1) & ~last[..., :-1].any(-1) & (number >= 0)
    obs = ring.obs(place)
    return Record(obs, ring.action(place), reward, discount, obs, last, mask), whole


def _label_pairs(pairs: LabelledPairs, found: Any, wrong: np.ndarray, seed: int, own: Any) -> None:
    """Ask the labeller one seed's questions; write the labels into ``pairs``, of NumPy arrays."""
    labeller, rows = preference_labellers.find(own.labeller), found[0]
    whole = np.flatnonzero(found[1][seed])
    count = int(pairs.count[seed])
    asked = min(own.queries, own.most - count, len(whole) // 2)
    both = whole[: 2 * asked].reshape(asked, 2)
    slots = slice(count, count + asked)
    for slot, (first, second) in enumerate(both.tolist(), count):
        label = float(labeller(_segment(rows, seed, first), _segment(rows, seed, second)))
        if label not in (0.0, 0.5, 1.0):
            raise Mistake(
                f"labeller={own.labeller!r} returned {label}; a labeller must return 0, 1 or 0.5"
            )
        turned = wrong[seed, slot - count]
        pairs.label[seed, slot] = 1.0 - label if turned else label
    for kept, drawn in ((pairs.obs, rows.obs), (pairs.action, rows.action)):
        for old, new in zip(jax.tree.leaves(kept), jax.tree.leaves(drawn), strict=True):
            old[seed, slots] = new[seed, both]
    pairs.count[seed] = count + asked


def _segment(rows: Record, seed: int, at: int) -> Record:
    """Return one segment, as it is shown to a labeller."""
    one: Record = jax.tree.map(lambda x: x[seed, at], rows)
    return one
