"""The example of docs/phases.md works as it stands, and its commands are understood."""

import re
import shlex
from pathlib import Path

import pytest

from sterling.cli_options import parse_command_line
from sterling.training.phases.phase_options import parse_phases

PAGE = (Path(__file__).parents[1] / "docs" / "phases.md").read_text()


@pytest.mark.slow
def test_phases_page_example_reports_forgetting():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict = {}
    exec(compile(code, "phases.md", "exec"), found)
    result = found["run"].result
    assert [each["steps"] for each in result["phases"]] == [2048, 2048, 1024]
    assert list(result["forgotten"]) == ["CartPole-v1"]


def test_phases_page_commands_parse():
    lines = re.findall(r"^(sterling .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 5
    asked = [parse_command_line(shlex.split(line)[1:]) for line in lines]
    said = [parse_phases(each.then) for each in asked if getattr(each, "then", [])]
    steps = [[phase.steps for phase in each] for each in said]
    assert steps == [[60_000], [20_000, 10_000], [20_000], [50_000]]
    assert said[0][0].environment.endswith("/my_worlds.py:weak")
    assert said[0][0].fields == {"lr": 1e-4}
    assert asked[-1].phase == 1
