"""Records laid end to end: weights that only some have, and groups that are apart."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from collected import collect

from sterling.experience.batch_draws import PreparedBatches
from sterling.experience.offline.mixed_sources import Mix, _concatenate
from sterling.types import Feed, Record


def record(rows, first, **extras):
    """Rows that pay ``first``, ``first`` + 1, ..."""
    reward = first + jnp.arange(float(rows))
    flags = jnp.ones(reward.shape, bool)
    return Record(
        reward[..., None], reward, reward, reward, reward[..., None], flags, flags, extras
    )


def test_mixed_sources_default_sample_weights_to_one():
    weight = jnp.full(3, 0.25)
    found = _concatenate([record(2, 0.0), record(3, 5.0, weight=weight)])
    np.testing.assert_array_equal(found.extras["weight"], [1, 1, 0.25, 0.25, 0.25])
    np.testing.assert_array_equal(found.reward, [0, 1, 5, 6, 7])
    assert _concatenate([record(2, 0.0), record(3, 5.0)]).extras == {}


def test_mixed_sources_keep_groups_apart():
    groups = [jnp.asarray(g, jnp.int32) for g in ([0, 0, 2], [0, 1], [1, 1, 1])]
    parts = [record(g.size, 0.0, group=g) for g in groups]
    found = _concatenate(parts).extras["group"]
    np.testing.assert_array_equal(found, [0, 0, 2, 3, 4, 6, 6, 6])


class Nobody:
    """What is drawn here needs no actor."""

    def act(self, obs, keys, explore):
        raise AssertionError


class Dice(eqx.Module):
    """Rows of chance."""

    traced, tally = True, None

    def collect(self, agent, keys, due):
        paid = jax.vmap(lambda key: jax.random.uniform(key, (4,)))(keys)
        both = jax.tree.map(lambda x: jnp.stack([x, x]), record(4, 0.0))
        return self, PreparedBatches(dataclasses.replace(both, reward=paid))


def test_mixed_sources_give_each_source_its_own_random_key():
    keys = jax.random.split(jax.random.key(0), 2)
    _, batch = collect(Mix((Dice(), Dice(), Dice())), Nobody(), keys, Feed("fresh"))
    assert len(np.unique(batch.reward)) == batch.reward.size == 24
