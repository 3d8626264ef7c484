"""Pictures as vectors: the same numbers, in one row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling import envs, random_keys
from sterling.types import Mistake

SEEDS = (0, 1)


def test_flatten_wrapper_shows_the_same_numbers():
    start = random_keys.for_seeds(jnp.asarray(SEEDS), "reset", 0)
    plain = envs.make("Breakout-MinAtar", SEEDS, 3)
    flat = envs.make("Breakout-MinAtar", SEEDS, 3, flatten=True)
    assert flat.spec.obs.shape == (400,)
    (state, pictures), (flat_state, rows) = plain.reset(start), flat.reset(start)
    for time in range(5):
        np.testing.assert_array_equal(rows, pictures.reshape(2, 3, 400))
        action = jnp.full((2, 3), time % 3, jnp.int32)
        step_keys = random_keys.for_seeds(jnp.asarray(SEEDS), "world", time)
        state, step = jax.jit(plain.step)(state, action, step_keys)
        flat_state, flat_step = jax.jit(flat.step)(flat_state, action, step_keys)
        pictures, rows = step.obs, flat_step.obs
        np.testing.assert_array_equal(step.reward, flat_step.reward)


def test_flatten_wrapper_scales_bytes_to_0_to_1():
    world = envs.make("Pong-v5", (0,), 2, flatten=True)
    assert world.spec.obs.shape == (4 * 84 * 84,)
    assert float(world.spec.obs.high.max()) == 1.0
    with jax.enable_x64(True):
        _, obs = world.reset(random_keys.for_seeds(jnp.asarray((0,)), "reset", 0))
    assert obs.dtype == np.float32
    assert 0.0 < float(obs.max()) <= 1.0
    world.close()


def test_flatten_wrapper_refuses_spaces_other_than_box():
    with pytest.raises(Mistake, match="Leave out flatten"):
        envs.make("gymnasium:FrozenLake-v1", (0,), 1, flatten=True)
