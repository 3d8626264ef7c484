"""The commands and the code of docs/looking.md work as they stand."""

import re
from pathlib import Path

import pytest

from sterling.cli import main

PAGE = Path(__file__).parents[1] / "docs" / "looking.md"
SERVES = "sterling watch runs/"  # until Ctrl-C: tests/report/test_watch.py


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Run every command of the page in order, except those that serve."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("looking"))
        commands = re.findall(r"^ {4}(sterling .*)$", PAGE.read_text(), re.MULTILINE)
        codes = {
            line: main(line.split()[1:])
            for line in commands
            if not line.startswith(SERVES) or "--static" in line
        }
        yield codes


@pytest.mark.slow
def test_looking_page_commands_run(done):
    assert len(done) == 6
    assert not any(done.values())
    assert Path("public/index.html").exists()
    assert Path("runs/cartpole/episodes.html").exists()
    assert list(Path("runs/cartpole").glob("seed-*.mp4"))


@pytest.mark.slow
def test_looking_page_python_reads_the_episodes_file(done):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found: dict = {}
    exec(compile(code, str(PAGE), "exec"), found)
    assert found["returns"].shape == (2, 8)
    assert found["facts"]["final"]
    index = found["facts"]["seeds"].index(int(found["seed"]))
    assert len(found["actions"]) == found["returns"][index, int(found["number"])]
