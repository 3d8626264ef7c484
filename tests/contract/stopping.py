"""Runs that a signal stops in the middle, and what is compared of runs that must be equal."""

import os
import signal

import jax
import numpy as np
from safetensors.numpy import load_file


class Stop:
    """A sink that asks the process to save and leave at a row that it is given."""

    def __init__(self, at=2):
        self.at, self.rows = at, 0

    def write(self, row):
        self.rows += 1
        if self.rows == self.at:
            os.kill(os.getpid(), signal.SIGTERM)

    def close(self):
        pass


def leaves(run):
    """What is learned, as numbers: the leaves of the state of all seeds."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run.agent.state)]


def newest(path):
    """The tensors of a run's newest checkpoint, by name."""
    return load_file(max((path / "checkpoints").iterdir()) / "tree.safetensors")
