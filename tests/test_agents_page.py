"""The example of docs/agents.md works as it stands, and its commands are understood."""

import re
import shlex
from pathlib import Path

import pytest

from sterling.cli_options import parse_command_line

PAGE = (Path(__file__).parents[1] / "docs" / "agents.md").read_text()


@pytest.mark.slow
def test_agents_page_example_learns_to_meet():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict = {}
    exec(compile(code, "agents.md", "exec"), found)
    final = found["run"].result["final"]
    assert final["reward.left"]["per_seed"] == final["reward.right"]["per_seed"]
    assert final["return"]["per_seed"][0] >= 2 * -(6 + 4 + 2)  # the shortest way of both


def test_agents_page_commands_parse():
    lines = re.findall(r"^(sterling .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 6
    trains = [parse_command_line(shlex.split(line)[1:]) for line in lines if "train" in line]
    assert [each.world for each in trains] == [
        "spread:3-agents-3x3",
        "spread:3-agents-3x3-state",
        "pettingzoo:mpe2/simple_spread_v3",
    ]
