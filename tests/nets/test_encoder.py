"""Observations as features: every choice has a place of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.nets.obs_encoder import Encoder
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
def test_obs_encoder_flattens_arrays_of_any_shape(space, obs, expected):
    encoder = Encoder.create(jax.random.key(0), space)
    seen = jnp.asarray(obs, jnp.int32 if np.dtype(space.dtype).kind == "i" else jnp.float32)
    np.testing.assert_array_equal(encoder(seen), expected)
    assert encoder(seen[None]).shape == (1, len(seen), encoder.size)


@pytest.mark.parametrize("sizes", [(2, 3, 1, 7, 3, 2), (4, 4, 4, 4, 4, 4), (5,)])
@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.int8])
def test_obs_encoder_one_hot_encodes_each_discrete_choice(sizes, kind):
    """Also where they count from elsewhere, and all zeros where there is no such choice."""
    start = [5, 0, 2, 1, 0, 3][: len(sizes)]
    encoder = Encoder.create(jax.random.key(0), spaces.MultiDiscrete(sizes, start=start))
    rng = np.random.default_rng(0)
    seen = jnp.asarray(rng.integers(0, 14, size=(4, 9, len(sizes))).astype(kind))
    each = enumerate(zip(sizes, start, strict=True))
    hot = [jax.nn.one_hot(seen[..., i] - at, n, dtype=jnp.float32) for i, (n, at) in each]
    found = jax.jit(encoder)(seen)
    np.testing.assert_array_equal(found, jnp.concatenate(hot, -1))
    assert found.dtype == jnp.float32


@pytest.mark.parametrize("sizes", [np.full((30, 30), 3), 2 + np.arange(900).reshape(30, 30) % 4])
def test_obs_encoder_of_a_large_grid_compiles_to_a_small_program(sizes):
    """With operations for each entry 30 x 30 took half a minute to compile."""
    encoder = Encoder.create(jax.random.key(0), spaces.MultiDiscrete(sizes))
    program = jax.make_jaxpr(encoder)(jnp.zeros((4, 30, 30), jnp.int32))
    assert str(program).count("\n") < 60


def test_obs_encoder_leaves_out_only_the_outermost_action_mask():
    mask, own = spaces.MultiBinary(2), spaces.Box(-1.0, 1.0, (1,), np.float32)
    inner = spaces.Dict({"action_mask": mask, "own": own})
    space = spaces.Dict({"action_mask": mask, "piece": inner})
    bits, number = jnp.array([[0, 1]], jnp.int8), jnp.array([[0.5]])
    seen = {"action_mask": bits[:, ::-1], "piece": {"action_mask": bits, "own": number}}
    np.testing.assert_array_equal(Encoder.create(jax.random.key(0), space)(seen), [[0, 1, 0.5]])


def test_obs_encoder_refuses_text_spaces():
    with pytest.raises(Mistake, match="type Text are not supported"):
        Encoder.create(jax.random.key(0), spaces.Text(3))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict({}),
        spaces.Dict({"action_mask": spaces.MultiBinary(2)}),
        spaces.Tuple(()),
        spaces.Box(-1.0, 1.0, (0,), np.float32),
        spaces.Box(0, 255, (8, 8, 0), np.uint8),
    ],
)
def test_obs_encoder_refuses_empty_spaces(space):
    """It ended in a division by zero."""
    with pytest.raises(Mistake, match="holds no numbers"):
        Encoder.create(jax.random.key(0), space)
