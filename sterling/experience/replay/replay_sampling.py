"""Batches of a replay buffer: uniform or by priority, of transitions or of sequences."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from sterling import random_keys as named
from sterling.equations.sequence_rows import unbroken
from sterling.experience import beside_rows
from sterling.experience.replay.episode_index import EpisodeIndex
from sterling.experience.replay.kept_extras import read_past
from sterling.experience.replay.n_step_windows import sample_windows, window_transitions
from sterling.experience.replay.priority_tree import Priorities, priority_window
from sterling.experience.replay.returns_to_go import ReturnsToGo
from sterling.experience.replay.ring_buffer import Place, Ring
from sterling.experience.replay.ring_tasks import RingTasks
from sterling.experience.replay.window_relabelling import Relabeller, WindowRows
from sterling.needs.feed import FRESH, MASK, PAD, PLACE
from sterling.types import AnyNeeds, Feed, Mistake, Record, SameTask, Signals


class ReplayDraws(eqx.Module):
    """Draws transitions ``(batch, ...)`` of a ring, or sequences ``(batch, time, ...)``.

    A drawn row is the start of a window of ``n_step`` rows of one episode: ``reward`` is their sum
    discounted by the feed's ``gamma``, ``next_obs`` the observation after them, and ``discount``
    the product of the world's discounts times gamma^(m-1) for the m rows summed (m is smaller than
    n where the episode ends or is truncated, and where an agent is cut off while others go on). So
    a learner multiplies ``discount`` by its own gamma once, whatever n is. Masked rows may be
    drawn. A sequence is a run of consecutive rows of the ring, and may cross episodes. Stored
    extras are those of a window's first row; channels that sum over an episode are summed over the
    window as rewards are.

    Rows are drawn uniformly or, with the feed's ``priority`` > 0, in proportion to their last TD
    error (Schaul 2016, section 3.3, stratified as in its appendix B.2.1); then ``extras["weight"]``
    holds importance weights, ``extras["place"]`` the rows' indices, and :meth:`heed` expects
    ``samples["td_error"]``, one number per draw.
    """

    ring: Ring
    feedback: Priorities | None
    needs: AnyNeeds = eqx.field(static=True)
    fresh: Record | None = None  # the rows collected last, for feeds of fresh rows
    relabel: Relabeller | None = None  # relabels windows before they are summed
    past_form: Any = eqx.field(static=True, default=None)  # structure of the pasts that are kept
    episodes: EpisodeIndex | None = None  # for later rows beside the batch
    to_go: ReturnsToGo | None = None  # for feeds with ``monte_carlo``
    tasks: RingTasks | None = None  # for rows of the same task

    def rows(self, feed: Feed) -> int:
        """Return the number of rows in one batch."""
        return self.needs.feed(feed.name).batch

    def presample(self, feed: Feed, keys: Key[Array, "seed"]) -> PyTree:
        """Draw the rows' indices, or for priorities numbers in [0, 1); with a relabeller, its
        random numbers too. For a feed of all fresh rows, return those."""
        own = self.needs.feed(feed.name)
        if own.whole:
            return self.fresh
        which = self._which(own, named.fold_each(keys, "sample"))
        if own.own_beside:
            of_tasks = partial(self._of_tasks, which)
            return which, beside_rows.presample(own, keys, self._anywhere, of_tasks)
        if self.relabel is None:
            return which
        return which, self.relabel.presample(keys, (own.updates, own.batch))

    def _anywhere(self, shape: tuple[int, int], keys: Key[Array, "seed"]) -> Int[Array, "..."]:
        return sample_windows(self.ring, 1, shape, keys)

    def _of_tasks(
        self, which: Int[Array, "seed update batch"], law: SameTask, keys: Key[Array, "seed"]
    ) -> Int[Array, "seed update batch rows"]:
        assert self.tasks is not None
        return self.tasks.draw(self.ring, law, which, keys)

    def _which(
        self, own: Feed, keys: Key[Array, "seed"]
    ) -> Int[Array, "seed update batch"] | Float[Array, "seed update batch"]:
        shape = (own.updates, own.batch)
        if not own.priority:
            return sample_windows(self.ring, own.window, shape, keys)
        share = jax.vmap(lambda key: jax.random.uniform(key, shape))(keys)
        strata = jnp.arange(own.batch, dtype=jnp.float32).reshape(1, 1, -1)
        return (strata + share) / own.batch

    def draw(
        self,
        feed: Feed,
        seed: Int[Array, ""],
        feedback: Priorities | None,
        sample: PyTree,
    ) -> Record:
        """Return the drawn windows as transitions, or the sequences that begin at the drawn
        rows."""
        own, extras = self.needs.feed(feed.name), {}
        if isinstance(sample, Record):
            return sample
        own = dataclasses.replace(own, n_step_now=feed.n_step_now)
        change, number, relabel, luck = self.relabel, sample, None, {}
        if own.own_beside or change is not None:
            number, luck = sample
        if change is not None:
            relabel = partial(_relabel_windows, change, luck)
        if feedback is not None and own.priority:
            number, weight = _add_seed_axis(feedback).draw(number[None])
            number, extras["weight"] = number[0], weight[0]
        if own.priority or "place" in own.add:
            extras["place"] = number
        place, known = place_of(self.ring, seed, number), number >= 0
        begins = place
        if own.length:
            begins, place, inside, made = self._sequences(own, place)
            known, extras = known[:, None] & inside, extras | made
        if own.monte_carlo is not None:
            assert self.to_go is not None
            extras["monte_carlo"] = self.to_go.lookup(self.ring, place)
        begun = read_past(self.past_form, self.ring, begins)
        keep = bool(self.needs.keep)
        batch = window_transitions(self.ring, own, place, extras=extras, keep=keep, relabel=relabel)
        beside: dict[str, Record] = {}
        if own.own_beside:
            store = RingRows(self.ring, self.episodes, seed)
            beside = beside_rows.rows_beside(own.own_beside, number, luck, store)
        return dataclasses.replace(batch, mask=batch.mask & known, start=begun, beside=beside)

    def _sequences(
        self, own: Feed, place: Place
    ) -> tuple[Place, Place, Bool[Array, "batch time"], dict[str, Array]]:
        """Return the places of sequences' first rows and of all, which rows belong to them, and
        extras."""
        if own.edge != PAD:
            ahead = place.ahead(own.length, self.ring.rows)
            _, _, last, mask = self.ring.scalars(ahead)
            inside = unbroken(last, mask) if own.edge == MASK else jnp.ones_like(mask)
            return place, ahead, inside, {}
        assert self.episodes is not None
        elapsed = self.episodes.lookup(self.ring, place)[0][:, None]
        back = jnp.arange(1 - own.length, 1, dtype=jnp.int32)[None]
        inside = elapsed + back >= 0
        steps = jnp.where(inside, back, -elapsed)
        row = jnp.mod(place.row[:, None] + steps, self.ring.rows)
        first = place._replace(row=row[:, 0])
        return first, place.at(row), inside, {"time": elapsed + steps}

    def heed(
        self, feed: Feed, feedback: Priorities | None, signals: Signals, batch: Record
    ) -> Priorities | None:
        """Update the priorities of the batch's rows from their TD errors; new rows of a feed that
        has their places need none."""
        own, errors = self.needs.feed(feed.name), signals.samples
        new = own.whole and PLACE in own.add and "td_error" in errors
        if feedback is None or not (own.priority or new):
            return feedback
        if "td_error" not in errors:
            raise Mistake(
                "prioritised replay needs the learner's samples['td_error']; "
                "return it from learn, or set priority to 0"
            )
        if new and priority_window(self.needs) > 1:
            raise Mistake(
                f"{feed.learner} sets priorities of new rows, but rows are drawn with those after "
                "them, which are not known yet. Leave out samples, or n_step and length."
            )
        place, error = batch.extras[PLACE].reshape(-1), errors["td_error"].reshape(-1)
        told = _add_seed_axis(feedback).learn(place[None], error[None])
        return jax.tree.map(lambda x: x[0], told)


def fresh_rows(ring: Ring, rows: Record, needs: AnyNeeds) -> Record | None:
    """Return the rows ``(seed, time, env, ...)`` that were stored last, for feeds of new rows, with
    their places if one asks for them, -1 where masked; None without such a feed."""
    feeds = [feed for feed in needs.feeds if feed.of == FRESH]
    if not feeds or not any(PLACE in feed.add for feed in feeds):
        return rows if feeds else None
    _, steps, envs = rows.mask.shape
    row = jnp.mod(ring.head + jnp.arange(-steps, 0, dtype=jnp.int32), ring.rows)
    place = row[:, None] * envs + jnp.arange(envs, dtype=jnp.int32)[None]
    place = jnp.where(rows.mask, place[None], -1)
    return dataclasses.replace(rows, extras=rows.extras | {PLACE: place})


@eqx.filter_jit  # for host worlds; no effect inside a compiled program
def start_rows(
    ring: Ring, form: Any, how: tuple[int, bool], keys: Key[Array, "seed"]
) -> tuple[Record, Bool[Array, "seed count"]]:
    """Return rows of every seed to roll a model out from, and which of them are experience.

    ``form``: the structure of the pasts that are kept; ``how``: the number of rows, and whether
    they have the extras that are kept.
    """
    number = sample_windows(ring, 1, (1, how[0]), keys)[:, 0]
    row, envs = jnp.maximum(number, 0), ring.words.shape[2]
    place = Place.of_all(row // envs, row % envs)
    rows = window_transitions(ring, Feed(), place, extras={}, keep=how[1])
    rows = dataclasses.replace(rows, start=read_past(form, ring, place))
    return rows, rows.mask & (number >= 0)


def place_of(ring: Ring, seed: Int[Array, ""], number: Int[Array, "..."]) -> Place:
    """Return the places of rows of one seed by their numbers; of negative ones that of row 0."""
    row, envs = jnp.maximum(number, 0), ring.words.shape[2]
    return Place(seed, row // envs, row % envs)


class RingRows(NamedTuple):
    """The rows of one seed in a ring, by their numbers ``row * envs + env``; a
    :class:`sterling.experience.beside_rows.Store`."""

    ring: Ring
    episodes: EpisodeIndex | None
    seed: Int[Array, ""]

    def steps_left(self, row: Int[Array, "..."]) -> Int[Array, "..."]:
        """Return how many known rows of its episode begin with each row; 0: unknown."""
        assert self.episodes is not None
        elapsed, length = self.episodes.lookup(self.ring, place_of(self.ring, self.seed, row))
        return jnp.where(row >= 0, length - elapsed, 0)

    def ahead(self, row: Int[Array, "..."], steps: Int[Array, "..."]) -> Int[Array, "..."]:
        """Return the rows so many steps later in the same episode."""
        _, rows, envs = self.ring.words.shape[:3]
        return jnp.where(row >= 0, jnp.mod(row + steps * envs, rows * envs), row)

    def at(self, row: Int[Array, "..."]) -> Record:
        """Return rows with what is kept of them."""
        place = place_of(self.ring, self.seed, row)
        found = window_transitions(self.ring, Feed(), place, extras={}, keep=True)
        return dataclasses.replace(found, mask=found.mask & (row >= 0))


def _relabel_windows(
    change: Relabeller, luck: PyTree, ring: Ring, window: Place, rows: WindowRows
) -> WindowRows:
    return change.relabel_windows(ring, window, rows, luck)


def _add_seed_axis(feedback: Priorities) -> Priorities:
    """Add a seed axis of one."""
    return jax.tree.map(lambda x: x[None], feedback)
