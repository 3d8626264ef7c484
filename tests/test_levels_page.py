"""The examples of docs/levels.md work as they stand, and its commands are understood."""

import re
import shlex
from pathlib import Path

import numpy as np

import sterling
from sterling.cli_options import parse_command_line
from sterling.training.assembly.build_sources import parse_layers
from sterling.training.saving import checkpoint

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "levels.md").read_text()


def python_of(page):
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def test_levels_page_example_starts_the_first_level():
    code = python_of(PAGE)[-1]
    found: dict = {}
    exec(compile(code, "levels.md", "exec"), found)
    assert not found["step"].mask.any()
    level = found["state"].task.level
    np.testing.assert_array_equal(level.doors, np.tile(found["world"].book.doors[0], (2, 3, 1)))


def test_levels_page_chooser_stays_near_the_best_level(tmp_path, monkeypatch):
    """Targets pay less the farther they are, so the best are near the place itself."""
    blocks = python_of((DOCS / "extending.md").read_text())
    (task,) = (text for text in blocks if text.startswith("# my_levels.py"))
    (tmp_path / "my_levels.py").write_text(task)
    (tmp_path / "my_chooser.py").write_text(python_of(PAGE)[0])
    monkeypatch.chdir(tmp_path)
    command = re.search(r"^    (sterling .*my_chooser.py)$", PAGE, re.MULTILINE).group(1)
    words = shlex.split(command)[2:]
    small = {"length": 64, "minibatch": 64, "epochs": 1, "width": 8, "envs": 2, "seeds": 2}
    small |= {"env_options": {"max_episode_steps": 9}, "quiet": True, "evaluate_episodes": 0}
    run = sterling.train(*words[:2], steps=256, sources=words[-1], out="run", **small)
    kept = checkpoint.read_arrays(run.path / "checkpoints", "source/chooser")[1]
    assert ((kept["best"] > -9.0) & (kept["best"] < 0.0)).all()
    assert ((kept["level"] >= 0.0) & (kept["level"] <= 1.0)).all()


def test_levels_page_commands_parse():
    lines = re.findall(r"^(sterling .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 9
    words = [parse_command_line(shlex.split(line)[1:]).sources for line in lines]
    assert [
        [(layer.word, tuple(vars(config).values())) for layer, config in parse_layers(word or "")]
        for word in words
    ] == [
        *([], [("plr", (0.1, 0.1))], [("plr", (1.0, 0.3))], []),
        *([("plr-robust", (1000.0, 0.5, 0.3, 0.3))], [("accel", (1000.0, 0.5, 0.3, 0.3, 3.0))]),
        *([("go-explore", ())], [], [("pool", (4.0, 10_000.0))]),
    ]
