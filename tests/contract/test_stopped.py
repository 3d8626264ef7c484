"""Stopped by a signal, saved, and resumed equals uninterrupted, bit for bit, for every algorithm.

One process trains, stops and resumes, so that its programs are compiled once; what a fresh process
makes of a run that was killed is in ``test_resume.py``.
"""

import os
import signal

import jax
import numpy as np
import pytest
from cases import CASES

import sterling

RUNS = [(case.name, case.spaces[-1]) for case in CASES.values()]


class Stop:
    """A sink that asks the process to save and leave at the second row that it is given."""

    def __init__(self):
        self.rows = 0

    def write(self, row):
        self.rows += 1
        if self.rows == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    def close(self):
        pass


@pytest.mark.parametrize(("name", "form"), RUNS)
def test_stopped_and_resumed_equals_uninterrupted(name, form, tmp_path, written_logs):
    case = CASES[name]
    budget = case.budget(f"both{form}", 3_200, written_logs)
    every = 160 if "steps" in budget else 20
    given = {"seeds": 2, "envs": case.envs, "preset": False, "log_every": every, **case.fields}
    given |= {"evaluate_episodes": 4, **budget}
    whole = sterling.train(name, f"probe:both{form}", out=tmp_path / "whole", **given)
    with pytest.raises(SystemExit) as left:
        sterling.train(name, f"probe:both{form}", out=tmp_path / "broken", sinks=[Stop()], **given)
    assert left.value.code == 75
    assert not (tmp_path / "broken" / "result.json").exists()  # it was in the middle
    resumed = sterling.resume(tmp_path / "broken")
    leaves = [jax.tree.leaves(run.agent) for run in (whole, resumed)]
    assert len(leaves[0]) == len(leaves[1])
    for one, other in zip(*leaves, strict=True):
        np.testing.assert_array_equal(_plain(one), _plain(other))
    assert whole.result["final"] == resumed.result["final"]


def _plain(leaf):
    """A leaf as numbers; keys of randomness by their data."""
    keyed = hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if keyed else leaf)
