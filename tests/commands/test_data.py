"""``sterling data``: what it prints, writes and answers."""

import argparse
import json

import h5py
import numpy as np
import pytest

from sterling.commands import data as command
from sterling.data import Dataset
from sterling.types import Mistake


def do(*words):
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    return command.carry_out(parser.parse_args([str(word) for word in words]))


@pytest.fixture
def logged(tmp_path):
    """A D4RL file: ten episodes of 20 steps that were cut, one action outside its bounds."""
    random = np.random.default_rng(0)
    rows = 200
    obs = np.tanh(np.cumsum(random.normal(size=(rows, 3)), 0) / 9).astype(np.float32)
    action = random.uniform(-1.9, 1.9, (rows, 1)).astype(np.float32)
    action[45] = 2.5
    timeouts = np.arange(rows) % 20 == 19
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["observations"], file["actions"] = obs, action
        file["rewards"] = random.normal(size=rows).astype(np.float32)
        file["terminals"], file["timeouts"] = np.zeros(rows, bool), timeouts
    return tmp_path / "a.hdf5"


def test_data_import_check_repair_and_export_commands(logged, tmp_path, capsys):
    own = tmp_path / "own"
    words = ("--environment", "Pendulum-v1", "--reference", -1500, -150)
    assert do("import", logged, own, *words) == 0
    assert "10 episodes, 190 rows" in capsys.readouterr().out
    assert Dataset(own).facts.reference == (-1500, -150)
    assert do("check", own, "--fix", tmp_path / "mended") == 1
    told = capsys.readouterr().out
    assert "error: action: episode 2 step 5: action [2.5] lies outside the space" in told
    assert "1 errors, 0 warnings" in told
    assert "190 rows: 0 errors left" in told
    assert do("check", tmp_path / "mended") == 0
    assert do("export", tmp_path / "mended", tmp_path / "out-v0", "--format", "minari") == 0
    capsys.readouterr()
    assert Dataset(tmp_path / "out-v0").hash == Dataset(tmp_path / "mended").hash
    metadata = json.loads((tmp_path / "out-v0" / "data" / "metadata.json").read_text())
    assert metadata["dataset_id"] == "out-v0"


def test_data_describe_command_prints_figures_and_draws_a_picture(logged, tmp_path, capsys):
    own = tmp_path / "own"
    do("import", logged, own, "--environment", "Pendulum-v1")
    capsys.readouterr()
    picture = tmp_path / "pictures" / "a.png"
    assert do("describe", own, "--reference", -5, 5, "--beside", own, "--out", picture) == 0
    told = capsys.readouterr().out
    assert "quality (TQ)" in told
    assert "coverage (SACo)   1.00" in told
    assert "[Schweighofer" in told or "[CORL" in told or "[Bhargava" in told
    assert picture.stat().st_size > 10_000
    with pytest.raises(Mistake, match="Unknown type of picture"):
        do("describe", own, "--out", tmp_path / "a.gif")


def test_data_check_command_counts_many_findings_of_a_kind(logged, tmp_path, capsys):
    with h5py.File(logged, "a") as file:
        file["rewards"][::20] = np.nan
    do("import", logged, tmp_path / "own")
    assert do("check", tmp_path / "own") == 1
    told = capsys.readouterr().out
    assert "error: nan: 5 more; --all prints them" in told
    assert do("check", tmp_path / "own", "--all") == 1
    assert capsys.readouterr().out.count("error: nan: episode") == 10


def test_fix_says_that_ends_of_one_length_stay_unless_the_time_limit_is_known(tmp_path, capsys):
    """They may be ends of a fixed horizon, which a repair must not change by itself."""
    rows, ends = 60 * 20, np.arange(60 * 20) % 20 == 19
    obs = np.random.default_rng(0).normal(size=(rows + 1, 2)).cumsum(0).astype(np.float32)
    columns = {"observations": obs[:-1], "next_observations": obs[1:], "terminals": ends}
    np.savez(tmp_path / "a.npz", **columns, actions=obs[1:, :1], rewards=obs[:-1, 1])
    assert do("check", tmp_path / "a.npz", "--fix", tmp_path / "same") == 0
    _, told = capsys.readouterr().out.split("not repaired:\n")
    assert "warning: terminal: episode 0: 60 episodes of exactly 20 steps are marked as" in told
    assert "say so with --limit 20" in told
    assert "1200 rows: 0 errors left, " in told
    assert Dataset(tmp_path / "same").ended.all()
    assert do("check", tmp_path / "a.npz", "--limit", 20, "--fix", tmp_path / "cut") == 1
    told = capsys.readouterr().out
    assert "error: terminal: episode 0: 60 episodes of exactly 20 steps" in told
    assert "repaired (1 finding): mark them as truncated (discount 1)\n" in told
    assert not Dataset(tmp_path / "cut").ended.any()


def test_data_check_command_of_a_damaged_or_missing_file(tmp_path, capsys):
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 and no more")
    assert do("check", tmp_path / "a.npz") == 1
    assert "error: file:" in capsys.readouterr().err
    with pytest.raises(Mistake, match="There is no file"):
        do("check", tmp_path / "b.npz")
