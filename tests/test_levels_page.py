"""The example of docs/levels.md works as it stands, and its commands are understood."""

import re
import shlex
from pathlib import Path

import numpy as np

from sterling.options import parse
from sterling.training.starts import GO_EXPLORE, numbers

PAGE = (Path(__file__).parents[1] / "docs" / "levels.md").read_text()


def test_the_example_begins_the_first_level_everywhere():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict = {}
    exec(compile(code, "levels.md", "exec"), found)
    assert not found["step"].mask.any()
    level = found["state"].task.level
    np.testing.assert_array_equal(level.doors, np.tile(found["world"].book.doors[0], (2, 3, 1)))


def test_the_commands_are_understood():
    lines = re.findall(r"^(sterling .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 5
    words = [parse(shlex.split(line)[1:]).starts for line in lines]
    assert words.pop() == GO_EXPLORE
    assert [word and numbers(word) for word in words] == [None, (0.1, 0.1), (1.0, 0.3), None]
