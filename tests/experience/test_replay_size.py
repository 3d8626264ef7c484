"""How much a replay has room for, and whether it keeps priorities."""

import functools

import jax.numpy as jnp
import pytest

from sterling import envs, random_keys
from sterling.experience.replay.replay_buffer import SPARE_ROWS, Replay
from sterling.experience.rollouts.rollout import Rollout
from sterling.types import Transitions


@functools.cache
def fixed_keys():
    return random_keys.for_seeds(jnp.arange(1, dtype=jnp.int32), "test", 0)


def made(steps, **needs):
    asked = Transitions(8, collect=1, capacity=100_000, **needs)
    world = envs.make("probe:both", (0,), 2)
    return Replay.create(Rollout.create(world, 1, fixed_keys()), asked, 1, fixed_keys(), steps)


def test_replay_capacity_is_bounded_by_the_planned_steps():
    assert made(None).ring.rows == 50_000  # the capacity, in two environments
    assert made(10**9).ring.rows == 50_000
    few = made(100).ring.rows
    assert 50 + SPARE_ROWS <= few <= 2 * (50 + SPARE_ROWS + 10)


@pytest.mark.parametrize(("priority", "kept"), [(0.0, False), (0.1, True), (1.0, True)])
def test_replay_keeps_priorities_only_where_used(priority, kept):
    assert (made(100, priority=priority).priorities is not None) is kept
