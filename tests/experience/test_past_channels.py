"""Actors with a memory know what the world reported in the step before, beside its reward."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling import envs, random_keys
from sterling.deploy.graph.policy_trace import trace_policy
from sterling.deploy.serving.policy_sessions import PolicySessions
from sterling.experience.rollouts.rollout import Rollout
from sterling.training.saving.added_leaves import added_leaves
from sterling.types import Mistake, Rollouts, Signals, config

SEEDS, ENVS = (0, 1), 3
WORLD = "probe:limits-costly"  # whose episodes cost 1 a step


@config
class Config:
    """Its settings."""

    gamma: float = 0.9  # discount


class State(eqx.Module):
    """Nothing changes."""

    config: Config


class Budget:
    """Acts by what its episode has cost so far: a memory of the sum of costs."""

    Config = Config
    __name__ = "budget"

    def needs(self, config):
        return Rollouts(4)

    def init(self, key, spec, config):
        return State(config)

    def memory(self, state, envs, key):
        return jnp.zeros(envs)

    def recall(self, state, past, obs, key, explore):
        spent = past.memory + past.channels["cost"]
        return (spent > 1.5).astype(jnp.int32), spent, {"spent": spent}

    def learn(self, state, batch, key):
        return state, Signals({"spent": jnp.max(batch.extras["spent"])})


class Actor(eqx.Module):
    """The same for every seed."""

    def memory(self, envs, keys):
        return jnp.zeros((len(SEEDS), envs))

    def recall(self, past, obs, keys, explore):
        return Budget().recall(None, past, obs, keys, explore)


@pytest.fixture(name="run", scope="module")
def _run():
    return sterling.train(Budget(), WORLD, steps=64, envs=4, evaluate_episodes=2, quiet=True)


def test_rollouts_tell_an_actor_the_channels_of_the_step_before():
    world = envs.make(WORLD, SEEDS, ENVS)
    keys = random_keys.for_seeds(jnp.asarray(SEEDS, jnp.int32), "start", 0)
    _, rows = eqx.filter_jit(Rollout.create(world, 12, keys, Actor()).live)(Actor(), keys)
    spent, begins, cost = (np.asarray(rows.extras[x]) for x in ("spent", "begins", "cost"))
    expected = np.zeros_like(spent[:, 0])
    for time in range(12):
        before = cost[:, time - 1] if time else 0.0
        expected = np.where(begins[:, time], 0.0, expected + before)
        np.testing.assert_array_equal(spent[:, time], expected)
    assert spent.max() >= 2.0


def test_player_must_be_told_the_channels_that_its_agent_reads(run):
    player = run.player()
    obs = np.zeros(run.world().spec.obs.shape, np.float32)
    assert player(obs) == 0
    with pytest.raises(Mistake, match=r'notice\(reward, last, \{"cost": \.\.\.\}\)'):
        player.notice(1.0, False)
    with pytest.raises(Mistake, match="reports no 'costs'; its channels are cost"):
        player.notice(1.0, False, {"costs": 1.0, "cost": 1.0})
    player.notice(1.0, False, {"cost": 1.0})
    assert player(obs) == 0
    player.notice(1.0, False, {"cost": 0.7})
    assert player(obs) == 1  # 1.7 are spent
    player.notice(1.0, True, {"cost": 1.0})
    assert player(obs) == 0


def test_files_and_servers_of_policies_that_read_channels_are_refused(run):
    for made in (trace_policy, PolicySessions):
        with pytest.raises(Mistake, match=r"\(cost\), which only run.player\(\) passes on"):
            made(run)


def test_runs_from_before_pasts_had_channels_can_be_resumed():
    names = {"source/past/first", "source/past/reward"}
    added = "source/past/channels/cost"
    assert added_leaves(names, {*names, added}) == {added}
    assert not added_leaves({"source/past/reward"}, {added})


def test_channels_that_nobody_reads_need_not_be_told():
    class Blind(Budget):
        __name__ = "blind"

        def recall(self, state, past, obs, key, explore):
            return jnp.zeros(past.first.shape, jnp.int32), past.memory, {"spent": past.memory}

    run = sterling.train(Blind(), WORLD, steps=64, envs=4, evaluate_episodes=0, quiet=True)
    player = run.player()
    player(np.zeros(run.world().spec.obs.shape, np.float32))
    player.notice(1.0, False)
    assert jax.tree.map(np.shape, player._past.channels) == {"cost": (1, 1)}
    trace_policy(run)
