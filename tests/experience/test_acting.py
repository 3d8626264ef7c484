"""What actors remember: when it begins anew, and that it is of what was really done."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling import envs
from sterling.envs.probes.probe_worlds import CUT_AFTER
from sterling.experience.rollouts.guided_rollout import GuidedRollout, JumpStart
from sterling.experience.rollouts.random_actions import RandomActor
from sterling.experience.rollouts.rollout import Rollout

ENVS, SEEDS = 3, (0, 1)


@functools.cache
def fixed_keys():
    return jax.random.split(jax.random.key(0), len(SEEDS))


class Counting(eqx.Module):
    """Always does ``action``, and counts the steps that it remembers."""

    action: float = 0.25

    def memory(self, envs, keys):
        return jnp.zeros((len(SEEDS), envs), jnp.int32)

    def recall(self, past, obs, keys, explore):
        count = past.memory + 1
        seen = {"count": count, "done": past.action[..., 0], "earned": past.reward}
        return jnp.full((*count.shape, 1), self.action), count, seen


class Host:
    """A world that is stepped by a Python loop."""

    traced, exact = False, False

    def __init__(self, world):
        self.world, self.spec, self.seeds = world, world.spec, world.seeds

    def reset(self, keys):
        return self.world.reset(keys)

    def step(self, state, action, keys):
        state, step = self.world.step(state, action, keys)
        return state, jax.tree.map(np.asarray, step)

    def close(self):
        self.world.close()


def rollout(length, actor, kind=lambda world: world):
    world = kind(envs.make("probe:cut-continuous", SEEDS, ENVS))
    return Rollout.create(world, length, fixed_keys(), actor)


@pytest.mark.parametrize("kind", [lambda world: world, Host], ids=["traced", "host"])
def test_actor_memory_resets_in_the_reset_row_and_not_in_the_last_row(kind):
    actor = Counting()
    source, first = rollout(7, actor, kind).live(actor, fixed_keys())
    _, second = source.live(actor, fixed_keys())
    count = np.concatenate([first.extras["count"], second.extras["count"]], 1)[0, :, 0]
    begins = np.concatenate([first.extras["begins"], second.extras["begins"]], 1)[0, :, 0]
    mask = np.concatenate([first.mask, second.mask], 1)[0, :, 0]
    whole = [*range(1, CUT_AFTER + 1), CUT_AFTER + 1]  # with the row that asks of what follows
    assert count.tolist() == (3 * whole)[:14]
    assert mask.tolist() == (3 * [*CUT_AFTER * [True], False])[:14]
    assert np.flatnonzero(begins).tolist() == [0, CUT_AFTER + 1, 2 * (CUT_AFTER + 1)]
    assert bool(first.start.first.all())
    assert second.start.memory[0, 0] == count[6]
    done, earned = first.extras["done"][0, :, 0], first.extras["earned"][0, :, 0]
    assert done.tolist() == [0.0, *4 * [0.25], 0.0, 0.25]
    assert earned.tolist() == [0.0, *4 * [1.0], 0.0, 1.0]


def test_actor_memory_records_random_warm_up_actions():
    actor = Counting()
    source = rollout(4, actor)
    _, rows = source.live(RandomActor(actor, source.world), fixed_keys())
    np.testing.assert_array_equal(rows.extras["done"][:, 1:], rows.action[:, :-1, :, 0])
    assert np.unique(rows.action).size == rows.action.size
    np.testing.assert_array_equal(rows.extras["count"][0, :, 0], [1, 2, 3, 4])


def test_guided_rollout_memories_of_learner_and_guide_hold_the_actions_taken():
    learner, guide = Counting(0.25), Counting(-0.5)
    rule = JumpStart.create(len(SEEDS), ENVS, steps=4, fade=1_000_000)
    begun = GuidedRollout.create(lambda actor: rollout(4, actor), learner, guide, rule)
    made, rows = begun.live(learner, fixed_keys())
    assert set(np.unique(rows.action)) == {np.float32(0.25), np.float32(-0.5)}
    np.testing.assert_array_equal(rows.extras["done"][:, 1:], rows.action[:, :-1, :, 0])
    np.testing.assert_array_equal(made.source.past.memory[1], made.source.past.memory[0])
    _, more = made.live(learner, fixed_keys())
    np.testing.assert_array_equal(more.start.memory, made.source.past.memory[0])


def test_guided_rollout_accepts_a_recurrent_guide_and_a_memoryless_learner():
    class Forgetful(eqx.Module):
        def act(self, obs, keys, explore):
            return jnp.full((len(SEEDS), ENVS, 1), 0.75), {}

    rule = JumpStart.create(len(SEEDS), ENVS, steps=4, fade=1_000_000)
    begun = GuidedRollout.create(lambda actor: rollout(4, actor), Forgetful(), Counting(), rule)
    made, rows = begun.live(Forgetful(), fixed_keys())
    assert set(np.unique(rows.action)) == {np.float32(0.25), np.float32(0.75)}
    assert rows.start is None
    assert int(made.source.past.memory[1][0, 0]) == 4
