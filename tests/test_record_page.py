"""docs/record.md does what it says: its code and its commands are carried out in order."""

import re
import shlex
from pathlib import Path

import gymnasium
import pytest

import sterling
from sterling.cli import main
from sterling.commands.data_import import TABLE_OPTIONS
from sterling.data import Dataset

PAGE = (Path(__file__).parents[1] / "docs" / "record.md").read_text()
SMALL = {"steps": 256, "envs": 2, "length": 32, "minibatch": 32, "width": 8, "preset": False}


def pieces():
    """Every block of code and every command, in the order of the page."""
    form = re.compile(r"```python\n(.*?)```|^ {4}(sterling [^\n]*)$", re.DOTALL | re.MULTILINE)
    return [(code, command) for code, command in (each.groups() for each in form.finditer(PAGE))]


def test_record_page_python_and_import_command_agree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for code, command in pieces():
        if code:
            exec(compile(code, "record.md", "exec"), names)
        elif command.startswith("sterling data import"):
            assert main(shlex.split(command)[1:]) == 0
    assert Dataset("data/valve").hash == Dataset("data/frame").hash


@pytest.mark.slow
def test_record_page_code_and_commands_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
    names: dict = {}
    sterling.train("ppo", "CartPole-v1", evaluate_episodes=0, out="runs/cartpole", **SMALL)
    for code, command in pieces():
        if code:
            exec(compile(code, "record.md", "exec"), names)
            continue
        windows = "--by" in command
        assert main(shlex.split(command)[1:]) == (2 if windows else 0), command
        if windows:
            assert "there is no display for a window" in capsys.readouterr().err
    assert len(Dataset("data/noisy")) == 10
    assert (tmp_path / "runs" / "valve" / "result.json").exists()


def test_every_option_of_tables_is_explained():
    told = set(re.findall(r"--[a-z-]+", PAGE))
    assert {"--" + name.replace("_", "-") for name in TABLE_OPTIONS} <= told


@pytest.mark.parametrize("environment", ["LunarLander-v3", "CartPole-v1"])
def test_record_page_environments_are_registered(environment):
    assert environment in gymnasium.registry
