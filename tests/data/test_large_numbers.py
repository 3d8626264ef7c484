"""Numbers that float32 does not hold, and complex ones, are found before they are learned from."""

import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from sterling.data import Dataset, Recorder, check, repair_dataset, require_valid
from sterling.data.device_dataset import to_device
from sterling.data.tables.table_cells import NotANumber, to_numbers
from sterling.types import Mistake


@pytest.mark.parametrize("value", [1e39, -1e300])
def test_check_finds_rewards_that_are_infinite_in_float32_and_repair_drops_them(build, value):
    data = build([6, 8], [True, False])
    block = next(data.blocks())
    reward = block.arrays["reward"].astype(np.float64)
    reward[8] = value
    block = dataclasses.replace(block, arrays={**block.arrays, "reward": reward})
    wrong = Dataset.from_block(block, data.obs_space, data.action_space, data.facts)
    found = [(x.severity, x.episode, x.step) for x in check(wrong) if x.kind == "nan"]
    assert found == [("error", 1, 2)]
    with pytest.raises(Mistake, match="episode 1 step 2: reward holds NaN or infinity in float32"):
        require_valid(wrong)
    assert not [x for x in check(repair_dataset(wrong, check(wrong))) if x.kind == "nan"]


@pytest.mark.parametrize(
    "cells",
    [
        np.array([1.0, 2.0 + 3.0j]),
        [1.0, 2.0 + 3.0j],
        [np.complex64(1.0), np.complex128(2.0 + 3.0j)],
        np.array([1.0, 2.0 + 3.0j], object),
    ],
)
def test_complex_cells_of_a_table_are_refused(cells):
    with pytest.raises(NotANumber, match="j"):
        to_numbers(cells)


class Paying(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1.0, 1.0, (1,)), spaces.Discrete(2)

    def __init__(self, reward):
        self.reward = reward

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), self.reward, False, False, {}


@pytest.mark.parametrize(
    ("reward", "said"), [(1e39, "finite in float32"), (1j, "real"), (np.complex64(1j), "real")]
)
def test_recorder_refuses_rewards_that_float32_does_not_hold(tmp_path, reward, said):
    env = Recorder(Paying(reward), tmp_path / "log", policy="test")
    env.reset()
    with pytest.raises(Mistake, match=f"a reward must be .*{said}"):
        env.step(0)
    env.close()


AT_ONCE = 1_700_000_000  # seconds of a clock


@pytest.mark.parametrize(
    ("column", "kept"),
    [
        (np.arange(14) + 1_700_000_000_000, "float32"),  # milliseconds of a clock
        (np.arange(14) - 2**40, "float32"),
        (np.arange(14, dtype=np.uint64) + 2**40, "float32"),
        (np.arange(14) * 0.05 + AT_ONCE, "float32"),
        (np.arange(14) + 2**31 - 14, "int32"),
        (np.arange(14, dtype=np.uint64) + 2**32 - 14, "uint32"),
        (np.arange(2**32 - 14, 2**32, dtype=np.uint32), "uint32"),
        (np.arange(14) * 0.05, "float32 without a word"),
        (
            np.full(14, 0.1) + np.arange(14) * 1e-17,
            "float32 without a word",
        ),  # constant but for noise
    ],
)
def test_extras_that_32_bits_do_not_hold_become_float32_with_one_line(build, capsys, column, kept):
    data = build([6, 8], [True, False])
    block = next(data.blocks())
    block = dataclasses.replace(block, arrays={**block.arrays, "extra/time": column})
    data = Dataset.from_block(block, data.obs_space, data.action_space, data.facts)
    both = [data.transitions(), data[1:].transitions(), to_device(data).transitions(np.arange(14))]
    for found, wanted in zip(
        (x.extras["time"] for x in both), (column, column[6:], column), strict=True
    ):
        assert found.dtype == kept.split()[0]
        np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=1e-7)
    said = capsys.readouterr().err
    assert said.count("extra/time holds numbers such as") == (kept == "float32")
    assert said.count("\n") == (kept == "float32")
