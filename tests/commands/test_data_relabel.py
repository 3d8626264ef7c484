"""``sterling data relabel``: what it writes and says, and what it refuses."""

import argparse

import numpy as np
import pytest
from gymnasium import spaces

from sterling.commands import data as command
from sterling.data import Dataset, check
from sterling.data.episode_columns import Block
from sterling.types import Mistake


def do(*words):
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    return command.carry_out(parser.parse_args([str(word) for word in words]))


@pytest.fixture(name="log")
def _log(tmp_path):
    """Twelve walks in the plane by the actions themselves; returns grow with their number."""
    random = np.random.default_rng(0)
    action = random.uniform(-2, 2, (12, 10, 2)).astype(np.float32)
    obs = np.concatenate([np.zeros((12, 1, 2)), np.cumsum(action, 1)], 1).astype(np.float32)
    arrays = {
        "obs": obs.reshape(-1, 2),
        "action": action.reshape(-1, 2),
        "reward": np.repeat(np.arange(12.0), 10).astype(np.float32),
        "discount": np.ones(120, np.float32),
    }
    block = Block(arrays, np.full(12, 10), np.zeros(12, np.int32))
    whole = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    made = Dataset.from_block(block, whole, spaces.Box(-2.0, 2.0, (2,), np.float32))
    made.save(tmp_path / "log")
    return tmp_path / "log"


def test_data_relabel_command_writes_rewards_from_the_best_demonstration(log, tmp_path, capsys):
    out = tmp_path / "out"
    assert do("relabel", log, out, "--rewards-from", log, "--best", 1, "--beta", 1) == 0
    told = capsys.readouterr().out
    made = Dataset(out)
    assert f"12 episodes, 120 rows, hash {made.hash[:12]}" in told
    assert "note: rewards by OTR" in told
    assert "from 1 demonstration with" in told
    assert np.argmax(made.returns) == 11
    assert not [one for one in check(made) if one.severity == "error"]
    with_actions = tmp_path / "with"
    assert do("relabel", log, with_actions, "--rewards-from", log, "--with-actions") == 0
    assert "observations and actions" in capsys.readouterr().out


@pytest.mark.slow
def test_data_relabel_command_writes_actions_from_a_labelled_dataset(log, tmp_path, capsys):
    data = Dataset(log)
    block = next(data[:4].blocks())
    hidden = {**block.arrays, "action": np.full((40, 1), np.nan, np.float32)}
    unbounded = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    bare = Block(hidden, block.lengths, block.sources)
    Dataset.from_block(bare, data.obs_space, unbounded).save(tmp_path / "hidden")
    data[4:].save(tmp_path / "known")
    words = ("--actions-from", tmp_path / "known", "--updates", 300)
    assert do("relabel", tmp_path / "hidden", tmp_path / "out", *words) == 0
    assert "the error is 0.0" in capsys.readouterr().out
    made = Dataset(tmp_path / "out")
    assert made.action_space == data.action_space
    np.testing.assert_allclose(made[2].action, data[2].action, atol=0.02)
    np.testing.assert_array_equal(made[2].reward, data[2].reward)
    do("relabel", tmp_path / "hidden", tmp_path / "again", *words, "--seed", 0)
    assert Dataset(tmp_path / "again").hash == made.hash  # 0 is the seed that is meant
    do("relabel", tmp_path / "hidden", tmp_path / "other", *words, "--seed", 1)
    assert Dataset(tmp_path / "other").hash != made.hash


def test_data_relabel_command_refuses_wrong_options_in_one_line(log, tmp_path, capsys):
    out = tmp_path / "out"
    with pytest.raises(Mistake, match="--seed has an effect only with --actions-from"):
        do("relabel", log, out, "--rewards-from", log, "--seed", 1)
    with pytest.raises(Mistake, match="--best has an effect only with --rewards-from"):
        do("relabel", log, out, "--actions-from", log, "--best", 1)
    with pytest.raises(Mistake, match="--best must lie between 1 and 12"):
        do("relabel", log, out, "--rewards-from", log, "--best", 13)
    with pytest.raises(Mistake, match="There is no file"):
        do("relabel", log, out, "--rewards-from", tmp_path / "nowhere")
    for words in ((), ("--rewards-from", log, "--actions-from", log)):
        with pytest.raises(SystemExit):
            do("relabel", log, out, *words)
    assert "--rewards-from" in capsys.readouterr().err
    assert not out.exists()
