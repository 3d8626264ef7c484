"""The program, the tasks and the commands of docs/agent-programs.md work as they stand."""

import re
import shlex
from pathlib import Path

import pytest

from sterling.cli import main

PAGE = (Path(__file__).parents[1] / "docs" / "agent-programs.md").read_text()
FILES = dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE, re.DOTALL))
(TASKS,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    line.removeprefix("sterling ")
    for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]


@pytest.mark.slow
def test_agent_programs_page_commands_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.jsonl").write_text(TASKS)
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    assert (sorted(FILES), len(COMMANDS)) == (["my_agent.py", "my_function.py"], 7)
    for command in COMMANDS:
        assert main(shlex.split(command)) in (0, None), command
    told = capsys.readouterr()
    assert "2 calls in 1 conversation, reward 1 (right)" in told.out + told.err
