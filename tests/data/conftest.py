"""Small datasets with a structure that can be read off the numbers."""

import numpy as np
import pytest
from gymnasium import spaces

from sterling.data import Dataset
from sterling.data.dataset_metadata import Facts, Source
from sterling.data.episode_columns import Block


def build(lengths, ended, *, seed=0, nested=False, discrete=False, extras=(), **facts):
    """Episodes whose observations are (episode, step, noise): a successor names its place."""
    random = np.random.default_rng(seed)
    lengths = np.array(lengths, np.int64)
    rows, episodes = int(lengths.sum()), len(lengths)
    number = np.repeat(np.arange(episodes), lengths + 1)
    step = np.concatenate([np.arange(n + 1) for n in lengths])
    obs = np.stack([number, step, random.normal(size=rows + episodes)], 1).astype(np.float32)
    arrays = {"obs": obs}
    obs_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    if nested:
        picture = random.integers(0, 256, (rows + episodes, 2, 2)).astype(np.uint8)
        obs_space = spaces.Dict(
            {
                "where": obs_space,
                "parts": spaces.Tuple(
                    [spaces.Box(0, 255, (2, 2), np.uint8), spaces.Discrete(4, start=1)]
                ),
            }
        )
        choice = random.integers(1, 5, rows + episodes)
        arrays = {"obs/parts/0": picture, "obs/parts/1": choice, "obs/where": obs}
    if discrete:
        action_space = spaces.Discrete(3, start=2)
        arrays["action"] = random.integers(2, 5, rows)
    else:
        action_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
        arrays["action"] = random.uniform(-1.9, 1.9, (rows, 2)).astype(np.float32)
    arrays["reward"] = random.normal(size=rows)
    arrays["discount"] = np.ones(rows, np.float32)
    last = np.cumsum(lengths) - 1
    arrays["discount"][last[np.array(ended, bool) & (lengths > 0)]] = 0.0
    if "log_prob" in extras:
        arrays["extra/log_prob"] = -random.exponential(size=rows).astype(np.float32)
    if "info" in extras:
        arrays["info/height"] = random.normal(size=rows + episodes)
    block = Block(arrays, lengths, np.zeros(episodes, np.int32))
    known = Facts(sources=(Source("made", generator="test"),), **facts)
    return Dataset.from_block(block, obs_space, action_space, known)


@pytest.fixture(scope="session", name="build")
def _build():
    return build


@pytest.fixture(scope="session")
def same():
    """Whether two datasets hold the same experience, number by number."""

    def compare(one, other):
        assert (one.obs_space, one.action_space) == (other.obs_space, other.action_space)
        assert one.columns == other.columns or set(one.columns) == set(other.columns)
        assert one.lengths.tolist() == other.lengths.tolist()
        pairs = zip(one.blocks(), other.blocks(), strict=True)
        for here, there in pairs:
            for name, array in here.arrays.items():
                assert array.dtype == there.arrays[name].dtype, name
                np.testing.assert_array_equal(array, there.arrays[name], err_msg=name)

    return compare
