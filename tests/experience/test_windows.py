"""Places of windows in a ring that is hardly filled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.experience.replay.n_step_windows import sample_windows
from sterling.experience.replay.ring_buffer import Ring
from sterling.types import Record


@pytest.mark.parametrize(("kept", "windows"), [(1, 0), (2, 0), (3, 1), (5, 3)])
def test_n_step_windows_begin_in_every_row_with_a_complete_window(kept, windows):
    """Windows of three rows."""
    obs, action = jnp.zeros((1, 2, 1)), jnp.zeros((1, 2, 1))
    ring = Ring.create(9, obs, action)
    flat = jnp.ones((1, kept, 2))
    rows = jnp.broadcast_to(obs[:, None], (1, kept, 2, 1))
    yes = flat > 0.0
    ring = ring.insert(Record(rows, rows, flat, flat, rows, ~yes, yes, {}))
    keys = jax.random.split(jax.random.key(0), 1)
    number = sample_windows(ring, 3, (1, 200), keys)
    wanted = range(2 * windows) if windows else [-1]  # two envs beside one another
    assert np.unique(number).tolist() == list(wanted)
