"""Batches of a replay buffer: uniform or by priority, of transitions or of sequences."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from sterling import random_keys as named
from sterling.experience.replay.kept_extras import read_past
from sterling.experience.replay.n_step_windows import sample_windows, window_transitions
from sterling.experience.replay.priority_tree import Priorities
from sterling.experience.replay.ring_buffer import Place, Ring
from sterling.experience.replay.window_relabelling import Relabeller, WindowRows
from sterling.types import AnyNeeds, Feed, Mistake, Record, Signals


class ReplayDraws(eqx.Module):
    """Draws transitions ``(batch, ...)`` of a ring, or sequences ``(batch, time, ...)``.

    A drawn row is the start of a window of ``n_step`` rows of one episode: ``reward`` is their sum
    discounted by the feed's ``gamma``, ``next_obs`` the observation after them, and ``discount``
    the product of the world's discounts times gamma^(m-1) for the m rows summed (m is smaller than
    n where the episode ends or is truncated). So a learner multiplies ``discount`` by its own gamma
    once, whatever n is. Masked rows may be drawn. A sequence is a run of consecutive rows of the
    ring, and may cross episodes. Stored extras are those of a window's first row; channels that sum
    over an episode are summed over the window as rewards are.

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
        if self.relabel is None:
            return which
        return which, self.relabel.presample(keys, (own.updates, own.batch))

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
        own = dataclasses.replace(own, horizon=feed.horizon)
        change, number, relabel = self.relabel, sample, None
        if change is not None:
            number, luck = sample
            relabel = partial(_relabel_windows, change, luck)
        if feedback is not None and own.priority:
            number, weight = _add_seed_axis(feedback).draw(number[None])
            number, extras["weight"] = number[0], weight[0]
        if own.priority or "place" in own.add:
            extras["place"] = number
        envs = self.ring.words.shape[2]
        start = jnp.maximum(number, 0)
        place, known = Place(seed, start // envs, start % envs), number >= 0
        begun = read_past(self.past_form, self.ring, place)
        if own.length:
            place, known = place.ahead(own.length, self.ring.rows), known[:, None]
        keep = bool(self.needs.keep)
        batch = window_transitions(self.ring, own, place, extras=extras, keep=keep, relabel=relabel)
        return dataclasses.replace(batch, mask=batch.mask & known, start=begun)

    def heed(
        self, feed: Feed, feedback: Priorities | None, signals: Signals, batch: Record
    ) -> Priorities | None:
        """Update the priorities of the batch's rows from their TD errors."""
        if feedback is None or not self.needs.feed(feed.name).priority:
            return feedback
        if "td_error" not in signals.samples:
            raise Mistake(
                "prioritised replay needs the learner's samples['td_error']; "
                "return it from learn, or set priority to 0"
            )
        error = signals.samples["td_error"]
        told = _add_seed_axis(feedback).learn(batch.extras["place"][None], error[None])
        return jax.tree.map(lambda x: x[0], told)


def _relabel_windows(
    change: Relabeller, luck: PyTree, ring: Ring, window: Place, rows: WindowRows
) -> WindowRows:
    return change.relabel_windows(ring, window, rows, luck)


def _add_seed_axis(feedback: Priorities) -> Priorities:
    """Add a seed axis of one."""
    return jax.tree.map(lambda x: x[None], feedback)
