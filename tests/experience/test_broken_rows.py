"""Steps in which a world broke: what is masked, and what nothing is learned of."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from collected import collect
from gymnasium import spaces

from sterling import random_keys
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.rollouts.rollout import Rollout
from sterling.types import Spec, Step, Transitions


@functools.cache
def fixed_keys():
    return random_keys.for_seeds(jnp.arange(1, dtype=jnp.int32), "test", 0)


NAN = float("nan")


class Actor:
    """Does the number that it sees."""

    def act(self, obs, keys, explore):
        return obs[..., 0].astype(jnp.int32), {}


class World:
    """Counts 1, 2, 3, ...; ``answers`` are each step's (observation, reward, last, mask)."""

    traced, exact, seeds, stack = True, True, 1, 1

    def __init__(self, answers):
        space = spaces.Box(0.0, 99.0, (1,), np.float32)
        self.spec = Spec(obs=space, action=spaces.Discrete(100), envs=1)
        self.answers = [jnp.asarray(x) for x in zip(*answers, strict=True)]

    def reset(self, keys):
        return jnp.zeros((), jnp.int32), jnp.zeros((1, 1, 1))

    def step(self, time, action, keys):
        seen, reward, last, mask = (x[time].reshape(1, 1) for x in self.answers)
        return time + 1, Step(seen[..., None], reward, jnp.ones((1, 1)), last, mask)

    def close(self):
        pass


@pytest.mark.parametrize(("seen", "reward"), [(NAN, 1.0), (2.0, NAN), (np.inf, 1.0)])
def test_rollout_masks_non_finite_steps_until_the_reset(seen, reward):
    good = [(1.0, 1.0, False, True)]
    rest = [(3.0, 1.0, False, True), (4.0, 1.0, True, True), (5.0, 0.0, False, False)]
    world = World([*good, (seen, reward, False, True), *rest, (6.0, 1.0, False, True)])
    source, rows = Rollout.create(world, 6, fixed_keys()).live(Actor(), fixed_keys())
    assert rows.mask[0, :, 0].tolist() == [True, False, False, False, False, True]
    assert bool(jnp.isfinite(rows.obs).all() & jnp.isfinite(rows.reward).all())
    assert source.tally.invalid.tolist() == [1]


def test_replay_next_action_excludes_the_action_of_a_crashed_step():
    """The world crashes in the third step and begins again at 9."""
    answers = [(1.0, 1.0, False, True), (2.0, 1.0, False, True), (9.0, 0.0, True, False)]
    answers += [(10.0 + n, 1.0, False, True) for n in range(5)]
    needs = Transitions(64, collect=8, capacity=60, add=("next_action",))
    source = Rollout.create(World(answers), needs.collect, fixed_keys())
    _, batch = collect(Replay.create(source, needs, 1, fixed_keys()), Actor(), fixed_keys())
    first, after = np.asarray(batch.obs)[0, 0, :, 0], np.asarray(batch.extras["next_action"])[0, 0]
    last, mask = np.asarray(batch.last)[0, 0], np.asarray(batch.mask)[0, 0]
    assert set(first[mask]) >= {0.0, 1.0, 9.0, 10.0}
    assert set(zip(first[mask & (first < 2)], after[mask & (first < 2)], strict=True)) == {
        (0.0, 1), (1.0, 0)
    }  # fmt: skip
    assert last[mask & (first == 1.0)].all()
    assert (after[mask & (first == 9.0)] == 10).all()
