"""The example of docs/steering.md works as it stands, and its commands are understood."""

import re
import shlex
from pathlib import Path

import pytest

from sterling.cli_options import parse_command_line
from sterling.training.config.stop_options import parse_stop_options
from sterling.training.steering.callbacks import METHODS, Event

PAGE = (Path(__file__).parents[1] / "docs" / "steering.md").read_text()


@pytest.mark.slow
def test_steering_page_callback_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict = {}
    rows = []
    noted = code.replace("event.log({", "rows.append(event.row); event.log({")
    exec(compile(noted, "steering.md", "exec"), found | {"rows": rows})
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said[:3]] == ["1024", "2048", "3072"]
    assert said[-1].endswith("None")  # it was not stopped
    assert rows[-1]["my/steps_left"] == [0.0, 0.0]
    assert {name for name in METHODS if f"def {name}(self, event)" in code} == set(METHODS)


def test_steering_page_table_lists_event_attributes():
    table = PAGE[PAGE.index("| of an event") :]
    named = [name for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
             for name in re.findall(r"`(\w+)", cell)]  # fmt: skip
    assert len(named) == 15
    attributes = re.search(r"Attributes:(.*)", Event.__doc__, re.DOTALL).group(1)
    assert all(hasattr(Event, name) or re.search(rf"\b{name}\b", attributes) for name in named)


def test_steering_page_commands_parse():
    lines = re.findall(r"^(sterling .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 7
    asked = [parse_command_line(shlex.split(line)[1:]) for line in lines]
    assert asked[0].stop_at == 475
    told = parse_stop_options(vars(asked[1]))
    assert (told["patience"], told["time_budget"], told["stop_at"]) == (10, 120.0, None)
    assert (asked[3].policy, asked[4].policy) == ("best", "best")
    assert parse_stop_options(vars(asked[6]))["time_budget"] == 240.0
