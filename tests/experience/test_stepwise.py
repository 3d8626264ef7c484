"""Sources that live step by step, in worlds that are programs and on the host."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling import envs, random_keys
from sterling.experience.rollouts.rollout import Rollout
from sterling.experience.rollouts.rollout_wrapper import Stepwise, act_one_step
from sterling.training.assembly.build_sources import LAYERS
from sterling.types import Mistake, Record

SEEDS, ENVS, LENGTH = (0, 1), 3, 12
BONUSES = ("rnd", "icm", "disagreement", "counts")  # which host worlds can serve
HOST = ("gymnasium:CartPole-v1", "envpool:CartPole-v1")


def at(time):
    return random_keys.for_seeds(jnp.asarray(SEEDS, jnp.int32), "test", time)


class Leaning(eqx.Module):
    """Goes where it leans, by chance."""

    def act(self, obs, keys, explore):
        return jax.vmap(lambda key: jax.random.randint(key, (ENVS,), 0, 2, jnp.int32))(keys), {}


class Clock(Stepwise, eqx.Module):
    """Counts its steps beside what it lives."""

    source: Rollout
    time: jax.Array

    def _step(self, agent, keys):
        source, row = act_one_step(self.source, agent, keys)
        now = jnp.broadcast_to(self.time, row.mask.shape)
        row = eqx.tree_at(lambda row: row.extras, row, {**row.extras, "time": now})
        return Clock(source, self.time + 1), row


def clock(traced):
    world = envs.make("CartPole-v1", SEEDS, ENVS, max_episode_steps=9)
    world.traced = traced
    return Clock(Rollout.create(world, LENGTH, at(0)), jnp.zeros((), jnp.int32))


@pytest.mark.slow
def test_stepwise_rollout_is_equal_for_host_and_compiled_environments():
    found = []
    for traced in (True, False):
        source, rows = clock(traced), []
        for time in range(1, 3):
            source, row = source.live(Leaning(), at(time))
            assert isinstance(row, Record)
            rows.append(row)
        assert source.length == LENGTH
        found.append((jax.tree.map(lambda *x: np.concatenate(x, 1), *rows), source.tally))
    (rows, tally), (others, other) = found
    np.testing.assert_array_equal(rows.extras["time"][0, :, 0], np.arange(2 * LENGTH))
    assert rows.last.any()
    for x, y in zip(jax.tree.leaves((rows, tally)), jax.tree.leaves((others, other)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("environment", HOST)
@pytest.mark.parametrize("word", [word for word in LAYERS if word not in BONUSES])
def test_sources_that_need_a_compiled_environment_refuse_host_ones(word, environment, tmp_path):
    how = {"steps": 4_000, "envs": 8, "sources": word, "out": tmp_path / "run"}
    said = r"\A[^\n]*(cannot begin an episode in a given start|two-player)[^\n]*\Z"
    with pytest.raises(Mistake, match=said):
        sterling.train("ppo", environment, **how)
    assert not (tmp_path / "run").exists()
