"""Observations as features: every choice has a place of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.nets.encoder import Encoder
from sterling.types import Mistake

FAR = spaces.MultiDiscrete([2, 2], start=[5, -1])
GRID = spaces.MultiDiscrete(np.array([[2, 3, 2], [2, 2, 4]]))


@pytest.mark.parametrize(
    ("space", "obs", "expected"),
    [
        (spaces.Discrete(3, start=-1), [-1, 1], [[1, 0, 0], [0, 0, 1]]),
        (FAR, [[5, 0], [6, -1]], [[1, 0, 0, 1], [0, 1, 1, 0]]),
        (GRID, [[[1, 2, 0], [0, 1, 3]]], [[0, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1, 0, 0, 0, 1]]),
        (spaces.MultiBinary([2, 2]), [[[1, 0], [1, 1]]], [[1, 0, 1, 1]]),
        (spaces.Box(0.0, 9.0, (), np.float32), [2.0, 3.0], [[2], [3]]),
    ],
)  # fmt: skip
def test_parts_of_any_shape_become_one_row(space, obs, expected):
    encoder = Encoder.create(jax.random.key(0), space)
    seen = jnp.asarray(obs, jnp.int32 if np.dtype(space.dtype).kind == "i" else jnp.float32)
    np.testing.assert_array_equal(encoder(seen), expected)
    assert encoder(seen[None]).shape == (1, len(seen), encoder.size)


def test_only_the_outermost_mask_is_left_out():
    mask, own = spaces.MultiBinary(2), spaces.Box(-1.0, 1.0, (1,), np.float32)
    inner = spaces.Dict({"action_mask": mask, "own": own})
    space = spaces.Dict({"action_mask": mask, "piece": inner})
    bits, number = jnp.array([[0, 1]], jnp.int8), jnp.array([[0.5]])
    seen = {"action_mask": bits[:, ::-1], "piece": {"action_mask": bits, "own": number}}
    np.testing.assert_array_equal(Encoder.create(jax.random.key(0), space)(seen), [[0, 1, 0.5]])


def test_what_has_no_numbers_is_refused():
    with pytest.raises(Mistake, match="Text is not understood"):
        Encoder.create(jax.random.key(0), spaces.Text(3))
