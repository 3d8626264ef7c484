"""The example of docs/schedules.md works as it stands; its commands and words are understood."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from sterling import schedule_words
from sterling.cli_options import parse_command_line
from sterling.commands.train import config_values
from sterling.training.phases.phase_options import parse_phases

PAGE = (Path(__file__).parents[1] / "docs" / "schedules.md").read_text()


@pytest.mark.slow
def test_the_example_trains_with_two_schedules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict = {}
    exec(compile(code, "schedules.md", "exec"), found)
    text = (tmp_path / "runs" / "scheduled" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in text]
    share = np.arange(8) / 8
    lr = 1e-3 * np.where(share < 0.25, share / 0.25, (1 - share) / 0.75)
    np.testing.assert_allclose([row["schedule/lr"][0] for row in rows], lr, rtol=1e-5)
    clip = 0.2 * np.sqrt(1 - 0.75 * share)
    np.testing.assert_allclose([row["schedule/clip"][0] for row in rows], clip, rtol=1e-5)


def test_schedules_page_commands_parse(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("schedule.csv").write_text("step,value\n0,3e-4\n100000,0\n")
    lines = re.findall(r"^(sterling .*)$", PAGE, re.MULTILINE)
    asked = [parse_command_line(shlex.split(line)[1:]) for line in lines]
    *trained, tuned = asked
    fields = [config_values(each) for each in trained]
    assert fields[0] == {"lr": "linear:3e-4:0"}
    assert fields[1] == {"lr": "cosine:3e-4:1e-5", "tau": "exponential:0.05:0.005"}
    assert fields[4] == {"lr": "schedule.csv"}
    assert parse_phases(trained[5].then)[0].fields == {"lr": "linear:1e-4:0"}
    assert dict(tuned.set) == {"lr": "linear:1e-3:0"}


def test_schedules_page_table_words_parse():
    words = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
    known = [word for word in words if word.partition(".")[2] not in ("csv", "py:falling")]
    assert len(known) == 8
    for word in known:
        schedule_words.parse(re.sub(r"\b([A-C])\b", lambda m: str(3 - ord(m[1]) % 3), word))
