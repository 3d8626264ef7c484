"""A place that cannot be written to is named in one line, before work is done for it."""

import errno

import numpy as np
import pytest

from sterling.cli import main
from sterling.system.atomic_files import Unwritable, check_writable, explain_write_errors


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A small log, and a file where folders are asked for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sterling.report.live.live_progress.SILENT_SECONDS", 600.0)
    (tmp_path / "file").write_text("no folder")
    rows = np.zeros(8, np.float32)
    np.savez(
        tmp_path / "log.npz",
        observations=np.zeros((8, 2), np.float32),
        actions=np.zeros((8, 1), np.float32),
        rewards=rows,
        terminals=np.arange(8) % 4 == 3,
    )


@pytest.mark.parametrize(
    "words",
    [
        "data import log.npz file/y",
        "data export log.npz file/y --format npz",
        "data export log.npz file/y --format minari",
        "data export log.npz file/y --format d4rl",
        "data check log.npz --fix file/y",
        "data describe log.npz --out file/y.png",
        "data relabel log.npz file/y --rewards-from log.npz",
        "data make CartPole-v1 --quality expert --size 10 --out file/y",
        "data make CartPole-v1 --quality expert --size 10 --out y --agents file/y",
        "compare ppo ppo --until-decided --environment probe:both-continuous --steps 4096 "
        "--out file/y",
        "train grpo reverse-text --model nano --updates 1 --dump file/y --out run",
    ],
)
def test_unwritable_output_path_is_named_in_one_line(words, log, capsys, tmp_path):
    before = {path.name for path in tmp_path.iterdir()}
    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    line = err.removesuffix("\n")
    assert "\n" not in line
    assert line.startswith("sterling: cannot write file/y")
    assert line.endswith("Not a directory. Choose another path.")
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "words",
    [
        "data import log.npz file",
        "data check log.npz --fix file",
        "data relabel log.npz file --rewards-from log.npz",
        "data make CartPole-v1 --quality expert --size 10 --out file",
    ],
)
def test_data_commands_do_not_overwrite_a_foreign_file(words, log, capsys, tmp_path):
    assert main(words.split()) == 2
    said = (
        "sterling: file exists and is not a dataset in the format sterling. Choose another name.\n"
    )
    assert capsys.readouterr().err == said
    assert (tmp_path / "file").read_text() == "no folder"


def test_unreadable_input_is_not_reported_as_unwritable_output(log, capsys, tmp_path):
    damaged = bytearray((tmp_path / "log.npz").read_bytes())
    damaged[200] ^= 255
    (tmp_path / "log.npz").write_bytes(damaged)
    assert main(["data", "import", "log.npz", "made"]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_unexpected_os_error_of_a_command_is_one_line(log, capsys, monkeypatch):
    def refused(chosen):
        raise NotADirectoryError(errno.ENOTDIR, "Not a directory", "file/y")

    monkeypatch.setattr("sterling.commands.list.carry_out", refused)
    assert main(["list", "algorithms"]) == 2
    assert capsys.readouterr().err.startswith("sterling: file/y: Not a directory. Choose")


def test_check_writable_creates_nothing(tmp_path):
    check_writable(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())
    with (
        pytest.raises(Unwritable, match=r"cannot write .*: No space left"),
        explain_write_errors(tmp_path),
    ):
        raise OSError(28, "No space left on device")
    with pytest.raises(Unwritable, match="too long"):
        check_writable(tmp_path / ("a" * 300))
