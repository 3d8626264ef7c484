"""Sequences of a replay know the past before their first row, whatever form a memory has."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array

from sterling import envs, random_keys
from sterling.actor import Past
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.replay.ring_buffer import Place
from sterling.experience.rollouts.rollout import Rollout
from sterling.types import Feed, Mistake, Needs

SEEDS, ENVS, STEPS = (0, 1), 3, 5


class Remembering(eqx.Module):
    """Counts the observations of an episode, and acts by the count; its memory is a tree."""

    def memory(self, envs, keys):
        shape = (len(SEEDS), envs)
        return {"count": jnp.zeros(shape, jnp.int32), "trace": jnp.zeros((*shape, 2))}

    def recall(self, past, obs, keys, explore):
        count = past.memory["count"] + 1
        action = jnp.sin(count.astype(jnp.float32))[..., None]
        return action, {"count": count, "trace": past.memory["trace"] + past.reward[..., None]}, {}


@functools.cache
def lived(warmup=0, keep=("begins", "memory"), actor=None, **feed):
    """A replay of twenty steps of every env, and draws from it: numbers of rows, and the rows."""
    actor = actor or Remembering()
    feeds = (Feed(batch=64, **feed),)
    needs = Needs(STEPS, feeds, 300, warmup, keep)
    world = envs.make("probe:cut-continuous", SEEDS, ENVS)
    keys = random_keys.for_seeds(jnp.asarray(SEEDS), "start", 0)
    replay = Replay.create(
        Rollout.create(world, STEPS, keys, actor), needs, 1, keys, actor=actor
    ).warm_up(actor, keys)
    for at in range(4):
        own = random_keys.for_seeds(jnp.asarray(SEEDS), "draw", at)
        replay, draws = replay.collect(actor, own)
    chance = draws.presample(feeds[0], keys)[1, 0]
    return replay, np.asarray(chance), draws.draw(feeds[0], constant_array(1), None, chance)


@pytest.mark.parametrize("length", [0, 4])
@pytest.mark.parametrize("warmup", [0, 12])
def test_replayed_rows_begin_with_the_past_that_acted(length, warmup):
    replay, number, batch = lived(warmup, length=length)
    start = jax.tree.map(np.asarray, batch.start)
    assert isinstance(batch.start, Past)
    every = jax.tree.map(np.asarray, rows_of(replay.ring))
    for at, (time, env) in enumerate(zip(number // ENVS, number % ENVS, strict=True)):
        begun = np.flatnonzero(every["begins"][: time + 1, env])[-1]
        assert start.memory["count"][at] == time - begun
        assert start.first[at] == (time == begun)
        before = {name: every[name][time - 1, env] for name in ("action", "reward")}
        if time == begun:
            before = {name: np.zeros_like(x) for name, x in before.items()}
        np.testing.assert_array_equal(start.action[at], before["action"])
        assert start.reward[at] == before["reward"]
        total = every["reward"][begun : max(time - 1, begun), env].sum()
        np.testing.assert_allclose(start.memory["trace"][at], total, atol=1e-6)
    assert {*batch.extras} == {"begins"}
    assert batch.extras["begins"].shape == ((64, length) if length else (64,))


def test_a_model_is_rolled_out_from_rows_with_their_past_and_what_is_kept():
    keys = random_keys.for_seeds(jnp.asarray(SEEDS), "starts", 0)
    rows, valid = jax.tree.map(np.asarray, lived(0, length=0)[0].starts(32, keys))
    count = rows.start.memory["count"]
    np.testing.assert_allclose(rows.action[valid][:, 0], np.sin(count[valid] + 1.0), rtol=1e-5)
    np.testing.assert_array_equal(rows.extras["begins"][valid], count[valid] == 0)
    assert np.unique(count[valid]).size > 1


def rows_of(ring):
    """What the second seed's rows say, ``(row, env)``."""
    row, env = jnp.meshgrid(jnp.arange(ring.rows), jnp.arange(ENVS), indexing="ij")
    place = Place(jnp.asarray(1), row, env)
    reward, *_ = ring.scalars(place)
    begins = ring.kept(place, ["begins"])["begins"]
    return {"reward": reward, "action": ring.action(place), "begins": begins}


def test_replay_refuses_to_keep_the_memory_of_an_actor_without_one():
    class Fixed(eqx.Module):
        def act(self, obs, keys, explore):
            return jnp.zeros((len(SEEDS), ENVS, 1)), {}

    with pytest.raises(Mistake, match="keep names 'memory', but the algorithm has no memory"):
        lived(actor=Fixed(), keep=("memory",))
