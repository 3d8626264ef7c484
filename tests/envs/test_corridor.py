"""Corridors: the one way through, by hand."""

import jax
import jax.numpy as jnp
import pytest

from sterling import envs
from sterling.envs.native import corridor
from sterling.types import Mistake


def test_corridor_forward_action_advances_and_the_other_returns():
    task, limit = corridor.make("12")
    key = jax.random.key(0)
    assert limit == 24
    assert set(task.forward_action.tolist()) == {0, 1}  # no action is right everywhere
    state, obs = task.reset(key)
    for cell, action in enumerate(task.forward_action.tolist()):
        assert int(state) == cell == int(obs.argmax())
        back, _, reward, ended, _ = task.step(state, jnp.int32(1 - action), key)
        assert (int(back), float(reward), bool(ended)) == (0, 0.0, False)
        state, obs, reward, ended, cut = task.step(state, jnp.int32(action), key)
        assert (float(reward), bool(ended)) == (float(cell == 11), cell == 11)
        assert not cut
    assert float(obs.sum()) == 0.0


@pytest.mark.parametrize("name", ["corridor:0", "corridor:long"])
def test_corridor_refuses_unknown_names(name):
    with pytest.raises(Mistake, match="Unknown environment"):
        envs.make(name, (0,), 1)
