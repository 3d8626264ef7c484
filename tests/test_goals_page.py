"""The example of docs/goals.md holds, and its commands are understood."""

import re
import shlex
from pathlib import Path

import pytest

from sterling.checking import check_environment
from sterling.checking.environments.world_rules import JUDGE_CHECK
from sterling.cli_options import parse_command_line
from sterling.training.config.hindsight_option import parse_hindsight

PAGE = (Path(__file__).parents[1] / "docs" / "goals.md").read_text()


@pytest.mark.slow
def test_goals_page_example_passes_environment_check():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict = {}
    exec(compile(code, "goals.md", "exec"), found)
    findings = list(check_environment(found["Points"](), quick=True))
    assert [each.what for each in findings if each.failed] == []
    assert JUDGE_CHECK in [each.what for each in findings]


def test_goals_page_commands_parse():
    lines = re.findall(r"^ *(sterling train .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 7
    words = [parse_command_line(shlex.split(line)[1:]).hindsight for line in lines]
    assert [parse_hindsight(word) for word in words[:3]] == [
        ("future", 0.8), ("future", 0.8), ("final", 0.8)
    ]  # fmt: skip
    others = re.findall(r"^sterling (?!train)(.*)$", PAGE, re.MULTILINE)
    found = [parse_command_line(shlex.split(line)).command for line in others]
    assert found == ["data", "evaluate", "data"]
