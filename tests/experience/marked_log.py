"""A log whose observations say which episode and step they are of."""

import numpy as np
from gymnasium import spaces

from sterling.data import Dataset
from sterling.data.episode_columns import Block

OBS = spaces.Box(-np.inf, np.inf, (2,), np.float32)
ACTIONS = spaces.Box(-1.0, 1.0, (1,), np.float32)


def marked_log(lengths, marks=None, columns=None):
    """Observation (episode, step); the reward of a row is its number; all episodes are cut off.
    ``marks`` are further columns, with one entry for each episode; ``columns`` have one for each
    row."""
    lengths = np.asarray(lengths)
    number = np.repeat(np.arange(len(lengths)), lengths + 1)
    step = np.concatenate([np.arange(n + 1) for n in lengths])
    rows = np.arange(lengths.sum(), dtype=np.float32)
    arrays = {
        "obs": np.stack([number, step], 1).astype(np.float32),
        "action": rows[:, None] / rows.size,
        "reward": rows,
        "discount": np.ones(rows.size, np.float32),
    }
    arrays |= {name: np.repeat(x, lengths, 0) for name, x in (marks or {}).items()}
    arrays |= columns or {}
    block = Block(arrays, lengths, np.zeros(len(lengths), np.int32))
    return Dataset.from_block(block, OBS, ACTIONS)
