"""Batches of a replay: uniform or by priority, of single rows or of stretches."""

from __future__ import annotations

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from sterling import keys as named
from sterling.experience.priority import Priorities
from sterling.experience.relabelling import Relabel, Rows
from sterling.experience.storage import Place, Ring
from sterling.experience.windows import transitions, uniform
from sterling.types import AnyNeeds, Feed, Mistake, Record, Signals


class ReplayDraws(eqx.Module):
    """Draws transitions ``(batch, ...)`` of a ring, or stretches ``(batch, time, ...)``.

    A drawn row is the start of a window of ``n_step`` rows of one episode: ``reward`` is their sum
    discounted by the feed's ``gamma``, ``next_obs`` the observation after them, and ``discount``
    the product of the world's discounts times gamma^(m-1) for the m rows summed (m is smaller than
    n where the episode ends or is cut). So a learner multiplies ``discount`` by its own gamma once,
    whatever n is. Rows that are no experience may be drawn: they have ``mask`` False. A stretch is
    rows that follow one another in the ring, and may cross episodes. What is kept of a row's extras
    is that of a window's first row, or where it is summed over an episode, summed over the window
    as rewards are.

    Rows are drawn uniformly, or with the feed's ``priority`` > 0 in proportion to their last TD
    error (Schaul 2016, section 3.3, stratified as in its appendix B.2.1); then
    ``extras["weight"]`` holds importance weights, ``extras["place"]`` names the rows, and
    :meth:`heed` expects ``samples["td_error"]``, one number for every draw.
    """

    ring: Ring
    heard: Priorities | None
    needs: AnyNeeds = eqx.field(static=True)
    fresh: Record | None = None  # what was lived last, for feeds of that
    relabel: Relabel | None = None  # a change of windows before they are summed

    def rows(self, feed: Feed) -> int:
        """Rows of one batch."""
        return self.needs.feed(feed.name).batch

    def chances(self, feed: Feed, keys: Key[Array, "seed"]) -> PyTree:
        """Which rows, or numbers in [0, 1) to find them by, with what relabelling them asks for as
        well, where they are relabelled; all that is fresh."""
        own = self.needs.feed(feed.name)
        if own.whole:
            return self.fresh
        which = self._which(own, named.fold_each(keys, "sample"))
        if self.relabel is None:
            return which
        return which, self.relabel.chances(keys, (own.updates, own.batch))

    def _which(
        self, own: Feed, keys: Key[Array, "seed"]
    ) -> Int[Array, "seed update batch"] | Float[Array, "seed update batch"]:
        shape = (own.updates, own.batch)
        if not own.priority:
            return uniform(self.ring, own.window, shape, keys)
        share = jax.vmap(lambda key: jax.random.uniform(key, shape))(keys)
        strata = jnp.arange(own.batch, dtype=jnp.float32).reshape(1, 1, -1)
        return (strata + share) / own.batch

    def draw(
        self,
        feed: Feed,
        seed: Int[Array, ""],
        heard: Priorities | None,
        chance: PyTree,
    ) -> Record:
        """The rows' windows as transitions, or the stretches that begin at them."""
        own, extras = self.needs.feed(feed.name), {}
        if isinstance(chance, Record):
            return chance
        own = dataclasses.replace(own, horizon=feed.horizon)
        change, number, relabel = self.relabel, chance, None
        if change is not None:
            number, luck = chance
            relabel = partial(_relabelled, change, luck)
        if heard is not None and own.priority:
            number, weight = _alone(heard).draw(number[None])
            number, extras["weight"] = number[0], weight[0]
        if own.priority or own.place:
            extras["place"] = number
        envs = self.ring.words.shape[2]
        start = jnp.maximum(number, 0)
        place, known = Place(seed, start // envs, start % envs), number >= 0
        if own.length:
            place, known = place.ahead(own.length, self.ring.rows), known[:, None]
        keep = bool(self.needs.keep)
        batch = transitions(self.ring, own, place, extras=extras, keep=keep, relabel=relabel)
        return dataclasses.replace(batch, mask=batch.mask & known)

    def heed(
        self, feed: Feed, heard: Priorities | None, signals: Signals, batch: Record
    ) -> Priorities | None:
        """The batch's priorities by its TD errors."""
        if heard is None or not self.needs.feed(feed.name).priority:
            return heard
        if "td_error" not in signals.samples:
            raise Mistake(
                "prioritised replay needs the learner's samples['td_error']; "
                "return it from learn, or set priority to 0"
            )
        error = signals.samples["td_error"]
        told = _alone(heard).learn(batch.extras["place"][None], error[None])
        return jax.tree.map(lambda x: x[0], told)


def _relabelled(change: Relabel, luck: PyTree, ring: Ring, window: Place, rows: Rows) -> Rows:
    return change.relabelled(ring, window, rows, luck)


def _alone(heard: Priorities) -> Priorities:
    """One seed's, as those of a run of one seed."""
    return jax.tree.map(lambda x: x[None], heard)
