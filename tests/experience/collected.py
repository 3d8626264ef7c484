"""All batches of one iteration at once, as tests look at them."""

import jax
import jax.numpy as jnp

from sterling.experience.batch_draws import feed_keys
from sterling.experience.replay.replay_sampling import ReplayDraws
from sterling.types import Signals


def collect(source, agent, keys, feed=None):
    """The source after one iteration, and the batches of its (first) feed: ``(seed, update, batch,
    ...)``, or all that was lived ``(seed, ...)``."""
    feed = feed or feed_of(source)
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
    chances = draws.presample(feed, feed_keys(feed, keys))

    def of_seed(seed, heard, chance):
        def one(chance):
            return draws.draw(feed, seed, heard, chance)

        return one(chance) if feed.whole else jax.vmap(one)(chance)

    seeds = jnp.arange(len(keys), dtype=jnp.int32)
    return jax.vmap(of_seed)(seeds, draws.feedback, chances)


def feed_of(of):
    """What is drawn by default from a source, or from draws; None: what was lived, as it is."""
    if hasattr(of, "needs"):
        return of.needs.feeds[0]
    inside = ("parts", "sources", "draws", "source")
    inner = next((getattr(of, name) for name in inside if hasattr(of, name)), None)
    inner = inner[0] if isinstance(inner, tuple) else inner
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

    return source.with_feedback(jax.vmap(of_seed)(draws.feedback, record, samples))
