"""A source whose learner also imagines what might follow the states of its replay."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from sterling import keys as named
from sterling.experience.draws import Draws, Wrapped
from sterling.experience.replay import Replay
from sterling.experience.room import check_room
from sterling.experience.storage import Place, Ring
from sterling.experience.windows import transitions, uniform
from sterling.needs import DREAM, REPLAY
from sterling.nets.heads import Actions
from sterling.types import AnyNeeds, Feed, Mistake, Needs, Record, Signals


class Dream(Wrapped, eqx.Module):
    """Lets the agent imagine branches in every iteration, from real states of ``source`` on, and
    keeps the newest of them (``needs.Dreams``).

    The branches of one iteration lie side by side in a ring, as envs do, ``horizon`` rows each and
    a row between that is no experience: it holds where they ended. Random numbers are those of the
    iteration, below "dream", so that what is lived is the same as without dreams.
    """

    source: Replay
    dreams: Ring
    feed: Feed = eqx.field(static=True)

    @classmethod
    def create(cls, source: Replay, feed: Feed) -> Dream:
        """Nothing is dreamt yet; ``feed`` is the one of dreams."""
        own: Any = feed.dreams
        seeds = source.world.seeds

        def wide(leaf: Array) -> Array:
            return jnp.zeros((seeds, own.branches, *leaf.shape[2:]), leaf.dtype)

        def ring() -> Ring:
            action = Actions.of(source.world.spec.action).nothing((seeds, own.branches))
            obs = jax.tree.map(wide, source.source.obs)
            blocks = -(-own.kept // (own.branches * own.horizon))
            return Ring.create((blocks + 1) * (own.horizon + 1), obs, action)

        check_room(own.kept, ring, "kept")
        return cls(source, ring(), feed)

    def collect(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[Dream, DreamDraws]:
        """What ``source`` collects, and new dreams."""
        source, draws = self.source.collect(agent, keys)
        dreams = _dreamt(self.feed, source.ring, self.dreams, agent, keys)
        return Dream(source, dreams, self.feed), DreamDraws(draws, dreams)


class DreamDraws(eqx.Module):
    """Batches of a replay, and those that are partly dreams."""

    draws: Any
    dreams: Ring

    heard = property(lambda self: self.draws.heard, doc="What updates change of the source.")

    def rows(self, feed: Feed) -> int:
        """Rows of one batch."""
        return feed.batch

    def chances(self, feed: Feed, keys: Key[Array, "seed"]) -> PyTree:
        """Those of the replay, and which dreamt rows."""
        draws: Draws = self.draws
        own = draws.chances(feed, keys)
        if feed.of != DREAM:
            return own
        shape = (feed.updates, feed.batch - draws.rows(feed))
        below = named.fold_each(keys, "dream")
        return own, jax.vmap(lambda key: _places(self.dreams, feed, shape, key))(below)

    def draw(self, feed: Feed, seed: Int[Array, ""], heard: PyTree, chance: PyTree) -> Record:
        """One update's batch: real rows before dreamt ones, or stretches of either. What the replay
        keeps of its rows' extras is not given: dreams have none of it."""
        if feed.of != DREAM:
            batch: Record = self.draws.draw(feed, seed, heard, chance)
            return batch
        real = self.draws.draw(feed, seed, heard, chance[0])
        place = Place(seed, chance[1][..., 0], chance[1][..., 1])
        if feed.length:
            place = place.ahead(feed.length, self.dreams.rows)
        dreamt = transitions(self.dreams, feed, place, extras={}, keep=False)
        extras = {name: real.extras[name] for name in dreamt.extras}
        both = dataclasses.replace(real, extras=extras), dreamt
        return jax.tree.map(lambda *each: jnp.concatenate(each), *both)

    def heed(self, feed: Feed, heard: PyTree, signals: Signals, batch: Record) -> PyTree:
        """Tell the source of its own rows."""
        return heard if feed.of == DREAM else self.draws.heed(feed, heard, signals, batch)


def check_dreams(name: str, needs: AnyNeeds) -> None:
    """Raise Mistake where the feed of dreams of the learner ``name`` asks for what no dream has."""
    feed = dreaming(needs)
    if feed is None:
        return
    if feed.dreams is None:
        raise Mistake(
            f"{name} has a feed of dreams and does not say which; give dreams=Dreams(...)"
        )
    asked = ", ".join(each for each in ("priority", "place") if getattr(feed, each))
    if asked:
        raise Mistake(
            f"{name}'s dreams are drawn uniformly and lie in no replay; leave out {asked} of "
            "their feed"
        )
    horizon = feed.dreams.horizon
    if feed.length > horizon:
        raise Mistake(
            f"{name} asks for stretches of {feed.length} dreamt rows, and a branch has {horizon}; "
            f"ask for length={horizon} at most, or a larger horizon"
        )


def dreaming(needs: AnyNeeds) -> Feed | None:
    """The feed of dreams, if there is one."""
    return next((feed for feed in needs.feeds if feed.of == DREAM), None)


def awake(needs: AnyNeeds) -> AnyNeeds:
    """What is needed of the replay: of dreams their share of real rows."""
    if dreaming(needs) is None:
        return needs

    def real(feed: Feed) -> Feed:
        if feed.dreams is None:
            return feed
        rows = round(feed.dreams.real * feed.batch)
        return dataclasses.replace(feed, of=REPLAY, batch=rows, dreams=None)

    feeds = tuple(real(feed) for feed in needs.feeds)
    return Needs(needs.collect, feeds, needs.capacity, needs.warmup, needs.keep)


@eqx.filter_jit  # for worlds on the host; inside a compiled program this changes nothing
def _dreamt(feed: Feed, real: Ring, dreams: Ring, agent: Any, keys: Key[Array, "seed"]) -> Ring:
    """The ring of dreams with those of one more iteration."""
    keys, envs = named.fold_each(keys, "dream"), real.words.shape[2]
    begin = named.fold_each(keys, "begin")
    number = uniform(real, 1, (1, feed.dreams.branches), begin)[:, 0]  # type: ignore[union-attr]
    start = jnp.maximum(number, 0)
    place = Place.of_all(start // envs, start % envs)
    valid = real.mask(place) & (number >= 0)
    rows = agent.imagine(real.obs(place), valid, named.fold_each(keys, "imagine"))
    return dreams.insert(_closed(rows))


def _closed(rows: Record) -> Record:
    """Branches ``(seed, time, branch, ...)``, and a row with where they ended."""
    end = jax.tree.map(lambda x: x[:, -1:], rows.next_obs)
    after = jax.tree.map(lambda x: jnp.zeros_like(x[:, :1]), rows)
    after = dataclasses.replace(after, obs=end, next_obs=end)
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y], 1), rows, after)


def _places(
    dreams: Ring, feed: Feed, shape: tuple[int, int], key: Key[Array, ""]
) -> Int[Array, "update batch 2"]:
    """Rows and branches, each whole row (of a stretch the first) as likely as every other: never
    those between, nor of the block of which the newest successor has taken the first observation.
    A stretch lies in one branch."""
    own: Any = feed.dreams
    block, starts = own.horizon + 1, own.horizon - max(feed.length, 1) + 1
    held = jnp.minimum(dreams.count, dreams.rows - block)
    oldest = dreams.head - held
    most = jnp.maximum(held // block, 1) * starts
    below = named.deal(key, "part", 2)
    at = jax.random.randint(below[0], shape, 0, most, jnp.int32)
    row = jnp.mod(oldest + at // starts * block + at % starts, dreams.rows)
    branch = jax.random.randint(below[1], shape, 0, dreams.words.shape[2], jnp.int32)
    return jnp.stack([row, branch], -1)
