"""Records laid end to end: weights that only some have, and groups that are apart."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sterling.experience.mix import Mix, _joined
from sterling.types import Record


def record(rows, first, **extras):
    """Rows ``(seed, row)`` that pay ``first``, ``first`` + 1, ..."""
    reward = jnp.broadcast_to(first + jnp.arange(float(rows))[None], (2, rows))
    flags = jnp.ones(reward.shape, bool)
    return Record(
        reward[..., None], reward, reward, reward, reward[..., None], flags, flags, extras
    )


def test_weights_that_only_one_source_gives_are_one_in_the_others():
    weight = jnp.full((2, 3), 0.25)
    found = _joined([record(2, 0.0), record(3, 5.0, weight=weight)], 1)
    np.testing.assert_array_equal(found.extras["weight"], [[1, 1, 0.25, 0.25, 0.25]] * 2)
    np.testing.assert_array_equal(found.reward, [[0, 1, 5, 6, 7]] * 2)
    assert _joined([record(2, 0.0), record(3, 5.0)], 1).extras == {}


def test_groups_of_several_sources_stay_apart():
    groups = [jnp.asarray(g, jnp.int32) for g in ([[0, 0, 2]] * 2, [[0, 1]] * 2, [[1, 1, 1]] * 2)]
    parts = [record(g.shape[1], 0.0, group=g) for g in groups]
    found = _joined(parts, 1).extras["group"]
    np.testing.assert_array_equal(found, [[0, 0, 2, 3, 4, 6, 6, 6]] * 2)


class Nobody:
    """What is drawn here needs no actor."""

    def act(self, obs, keys, explore):
        raise AssertionError


class Dice(eqx.Module):
    """Rows of chance."""

    traced, tally, rows = True, None, 4

    def draw(self, agent, keys):
        paid = jax.vmap(lambda key: jax.random.uniform(key, (4,)))(keys)
        return self, dataclasses.replace(record(4, 0.0), reward=paid)


def test_every_source_has_chances_of_its_own():
    keys = jax.random.split(jax.random.key(0), 2)
    _, batch = Mix((Dice(), Dice(), Dice()), axis=1).draw(Nobody(), keys)
    assert len(np.unique(batch.reward)) == batch.reward.size == 24
