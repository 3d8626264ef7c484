"""The example of docs/levels.md works as it stands, and its commands are understood."""

import re
import shlex
from pathlib import Path

import numpy as np

from sterling.cli_options import parse_command_line
from sterling.training.assembly.build_sources import parse_layers

PAGE = (Path(__file__).parents[1] / "docs" / "levels.md").read_text()


def test_levels_page_example_starts_the_first_level():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict = {}
    exec(compile(code, "levels.md", "exec"), found)
    assert not found["step"].mask.any()
    level = found["state"].task.level
    np.testing.assert_array_equal(level.doors, np.tile(found["world"].book.doors[0], (2, 3, 1)))


def test_levels_page_commands_parse():
    lines = re.findall(r"^(sterling .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 9
    words = [parse_command_line(shlex.split(line)[1:]).sources for line in lines]
    assert [
        [(layer.word, numbers) for layer, numbers in parse_layers(word or "")] for word in words
    ] == [
        *([], [("plr", (0.1, 0.1))], [("plr", (1.0, 0.3))], []),
        *([("plr-robust", (1000.0, 0.5, 0.3, 0.3))], [("accel", (1000.0, 0.5, 0.3, 0.3, 3.0))]),
        *([("go-explore", ())], [], [("pool", (4.0, 10_000.0))]),
    ]
