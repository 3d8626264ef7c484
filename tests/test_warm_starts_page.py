"""The examples of docs/warm-starts.md work as they stand, and its commands are understood."""

import re
import shlex
from pathlib import Path

import pytest

from sterling.cli_options import parse_command_line

PAGE = (Path(__file__).parents[1] / "docs" / "warm-starts.md").read_text()


@pytest.mark.slow
def test_warm_starts_page_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, second = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (line,) = re.findall(r"^    (init: .*)$", PAGE, re.MULTILINE)
    found: dict = {}
    exec(compile(first, "warm-starts.md", "exec"), found)
    assert line.replace("runs/earlier", str(tmp_path / "runs/earlier")) in capsys.readouterr().out
    exec(compile(second, "warm-starts.md", "exec"), found)
    said = capsys.readouterr().out
    assert "took policy (6 of 7 arrays), obs_statistics; not value (not in it)" in said
    assert found["run"].result["steps"] == 2048


def test_warm_starts_page_commands_parse():
    lines = re.findall(r"^(sterling .*)$", PAGE, re.MULTILINE)
    asked = [parse_command_line(shlex.split(line)[1:]) for line in lines]
    starts = [each.init for each in asked[:-1]]
    assert starts[1] == "runs/earlier:seed=3"
    assert len(starts) == 6
    assert starts[4] == "model.zip+vec_normalize.pkl"
    assert asked[-1].steps == 50_000
