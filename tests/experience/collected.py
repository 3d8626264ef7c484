"""All batches of one iteration at once, as tests look at them."""

import jax
import jax.numpy as jnp

from sterling.experience.draws import keys_of
from sterling.experience.replay_draws import ReplayDraws
from sterling.types import Signals


def collect(source, agent, keys, feed=None):
    """The source after one iteration, and the batches of its (first) feed: ``(seed, update, batch,
    ...)``, or all that was lived ``(seed, ...)``."""
    source, draws = source.collect(agent, keys)
    return source, batches(draws, keys, feed)


def replayed(replay):
    """What would be drawn from a replay as it is."""
    return ReplayDraws(replay.ring, replay.priorities, replay.needs)


def batches(draws, keys, feed=None):
    """Every batch of a feed, drawn one by one."""
    feed = feed or feed_of(draws)
    if feed is None:
        return draws.record
    chances = draws.chances(feed, keys_of(feed, keys))

    def of_seed(seed, heard, chance):
        def one(chance):
            return draws.draw(feed, seed, heard, chance)

        return one(chance) if feed.whole else jax.vmap(one)(chance)

    seeds = jnp.arange(len(keys), dtype=jnp.int32)
    return jax.vmap(of_seed)(seeds, draws.heard, chances)


def feed_of(draws):
    """What is drawn by default; None: what was lived, as it is."""
    if hasattr(draws, "needs"):
        return draws.needs.feeds[0]
    inner = getattr(draws, "parts", (getattr(draws, "draws", None),))[0]
    return None if inner is None else feed_of(inner)


def tell(source, draws, record, samples, feed=None):
    """The source, told of batches that were learned from in turn."""
    feed = feed or feed_of(draws)

    def of_seed(heard, record, samples):
        def one(heard, each):
            batch, found = each
            return draws.heed(feed, heard, Signals({}, found), batch), None

        each = (record, samples)
        return one(heard, each)[0] if feed.whole else jax.lax.scan(one, heard, each)[0]

    return source.hearing(jax.vmap(of_seed)(draws.heard, record, samples))
