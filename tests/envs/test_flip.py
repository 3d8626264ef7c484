"""Flipping bits: what is known of it holds in play."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling import envs, random_keys
from sterling.envs.native import bit_flip
from sterling.types import Mistake


def play(bits, policy, envs_, steps):
    """Return of every episode that was played to its end, and whether it succeeded."""
    world = envs.make(f"flip:{bits}", (0,), envs_)
    state, obs = world.reset(random_keys.for_seeds(jnp.zeros(1, jnp.int32), "reset", 0))

    def step(carry, time):
        state, obs, total = carry
        own = random_keys.for_seeds(jnp.zeros(1, jnp.int32), "world", time)
        state, answer = world.step(state, policy(obs, time), own)
        total = jnp.where(answer.mask, total + answer.reward, 0.0)
        rows = (total, answer.last, answer.discount, answer.channels["success"])
        return (state, answer.obs, total), rows

    start = (state, obs, jnp.zeros((1, envs_)))
    _, rows = jax.jit(lambda: jax.lax.scan(step, start, jnp.arange(steps, dtype=jnp.int32)))()
    total, last, discount, success = (np.asarray(x) for x in rows)
    np.testing.assert_array_equal(success[last], discount[last] == 0.0)
    return total[last], success[last]


def flip_what_differs(obs, time):
    return jnp.argmax(jnp.abs(obs["achieved_goal"] - obs["desired_goal"]), -1)


@pytest.mark.parametrize("bits", [2, 5])
def test_bit_flip_optimal_policy_gets_the_stated_return(bits):
    total, success = play(bits, flip_what_differs, 500, 60)
    assert success.all()
    task = bit_flip.make(str(bits))[0]
    assert abs(total.mean() - task.best) < 5 * total.std() / np.sqrt(total.size)


def test_bit_flip_random_policy_never_succeeds_and_is_truncated():
    def chance(obs, time):
        return jax.random.randint(jax.random.key(time), (1, 200), 0, 20)

    total, success = play(20, chance, 200, 60)
    assert total.size >= 400
    assert (total == -20.0).all()
    assert not success.any()


@pytest.mark.parametrize("name", ["flip:1", "flip:few"])
def test_bit_flip_refuses_unknown_names(name):
    with pytest.raises(Mistake, match="Unknown environment"):
        envs.make(name, (0,), 1)
