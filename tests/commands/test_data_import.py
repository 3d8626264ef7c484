"""``sterling data import`` of tables: what it prints, answers, and what is learned from it."""

import json
import re

import h5py
import numpy as np
import pytest

import sterling
from sterling.cli import main
from sterling.data import Dataset

HEADER = "id,a,b,u,r,done"
COLUMNS = ["--obs", "a,b", "--action", "u", "--reward", "r", "--episode", "id"]


@pytest.fixture
def log(tmp_path):
    """Four episodes of five steps, of which the even ones terminate."""
    random = np.random.default_rng(0)
    path = tmp_path / "log.csv"
    rows = [
        f"{at // 5},{random.normal():.3f},{random.normal():.3f},{('left', 'right')[at % 2]},"
        f"{random.normal():.3f},{int(at % 10 == 4)}"
        for at in range(20)
    ]
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def test_a_table_becomes_a_checked_dataset(log, tmp_path, capsys):
    out = tmp_path / "mine"
    words = ["data", "import", str(log), *COLUMNS, "--terminal", "done", "--out", str(out)]
    assert main(words) == 0
    told = capsys.readouterr().out
    for line in (
        "observations: 2 numbers: a, b",
        "actions: 2 choices",
        "choices of u: left=0, right=1",
        "rewards: r; episodes: id; terminated: done",
        "note: the last rows of 2 truncated episodes have no successor",
        "4 episodes, 18 rows, hash",
        "0 errors, 0 warnings, 3 notes",
    ):
        assert line in told
    assert main([*words[:3], str(out), *words[3:-2]]) == 0  # the last one is where to write
    assert Dataset(out).rows == 18


def test_arrays_of_a_file_that_are_not_read_are_named(tmp_path, capsys):
    zeros = np.zeros((6, 1), np.float32)
    parts = {"observations": zeros, "actions": zeros, "rewards": zeros[:, 0]}
    parts["terminals"] = np.arange(6) == 5
    np.savez(tmp_path / "log.npz", **parts, states=zeros, speed=zeros[:, 0])
    assert main(["data", "import", str(tmp_path / "log.npz"), str(tmp_path / "one")]) == 0
    told = capsys.readouterr().out
    assert "left out, because observations is read in its place: states" in told
    columns = re.search(r"^columns: (.*)$", told, re.M)[1].split(", ")
    assert sorted(columns) == ["action", "discount", "extra/speed", "obs", "reward"]
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        for name, array in (parts | {"speed": zeros}).items():
            file[name] = array
    assert main(["data", "import", str(tmp_path / "log.hdf5"), str(tmp_path / "two")]) == 0
    assert "left out, no entries of D4RL: speed" in capsys.readouterr().out


def test_data_import_command_exit_code_follows_the_check(log, tmp_path, capsys):
    rows = log.read_text().splitlines()
    rows[2] = rows[2][:-1] + "1"  # terminated, and three more steps follow
    log.write_text("\n".join(rows))
    words = ["data", "import", str(log), *COLUMNS, "--terminal", "done"]
    assert main([*words, "--out", str(tmp_path / "mine")]) == 1
    told = capsys.readouterr().out
    assert "error: terminal: episode 0 step 1: the episode ended, but 3 more steps follow" in told
    assert "to repair: sterling data check" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["log.csv"], "no folder to write is named; add --out FOLDER"),
        (["log.csv", "out"], "no column of observations is named; add --obs"),
        (["log.npz", "out", "--obs", "a"], r"log.npz is no table .* which --obs is for"),
        (["log.csv", "log.npz", "out"], "log.npz is no table"),
        (["log.csv", "out", *COLUMNS, "--limit", "3"], "--limit has no effect on tables"),
        (["no.csv", "out", *COLUMNS], "There is no file"),
    ],
)
def test_data_import_command_refuses_wrong_options_in_one_line(
    words, said, log, monkeypatch, capsys
):
    tmp_path = log.parent
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "log.npz", observations=np.zeros((2, 1)))
    assert main(["data", "import", *words]) == 2
    told = capsys.readouterr().err
    assert re.search(said, told)
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_imported_table_trains_without_an_environment(log, tmp_path, capsys):
    out, run = str(tmp_path / "mine"), tmp_path / "run"
    assert main(["data", "import", str(log), *COLUMNS, "--terminal", "done", "--out", out]) == 0
    words = ["train", "iql", out, "--updates", "4", "--width", "8", "--batch", "8"]
    assert main([*words, "--out", str(run), "--quiet"]) == 0
    said = capsys.readouterr().err
    assert "names no environment, so the policy is not evaluated; --environment ENV" in said
    assert json.loads((run / "config.json").read_text())["evaluate_episodes"] == 0
    assert int(sterling.load(run).policy(np.zeros(2, np.float32))) in (0, 1)
    for more, line in (
        (["--evaluate-episodes", "4"], "evaluation needs one. Add --environment ENV"),
        (["--evaluate-every", "2"], "or set --evaluate-episodes 0"),
        (["--steps", "99"], "steps need one. Add --environment ENV"),
    ):
        assert main([*words, *more, "--out", str(tmp_path / "other")]) == 2
        assert line in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
    for command in ("evaluate", "play"):
        assert main([command, str(run)]) == 2
        assert "Train with --environment ENV, or estimate" in capsys.readouterr().err
