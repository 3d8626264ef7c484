"""The files, the scene played by hand and the commands of docs/tools.md work as they stand."""

import json
import re
import shlex
from pathlib import Path

import pytest

from sterling.cli import main
from sterling.language.scene_dialogue import ChatSettings
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds import find_world
from sterling.language.worlds.world_solutions import demonstrate

PAGE = (Path(__file__).parents[1] / "docs" / "tools.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
FILE = re.compile(r"# (\S+\.py)\n")


@pytest.fixture(name="folder")
def _folder(tmp_path, monkeypatch):
    """A folder with the page's files, in which its commands and examples run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for code in PYTHON:
        if named := FILE.match(code):
            (tmp_path / named[1]).write_text(code)
    return tmp_path


def run_examples():
    for code in PYTHON:
        if not FILE.match(code):
            exec(compile(code, "tools.md", "exec"), {})


def test_tools_page_examples_run_and_print_what_is_shown(folder, capsys):
    run_examples()
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert capsys.readouterr().out == shown
    lines = [json.loads(line) for line in (folder / "demonstrations.jsonl").open()]
    world = find_world("tools:shop.py")
    for seed, line in enumerate(lines[:9]):
        scene = world.begin(seed, 0)
        talk = [each["content"] for each in line["messages"]]
        assert scene.turn.messages[-1].content == talk[0]
        scene.say(talk[1])
        assert scene.turn.messages[-1].content == talk[2]
        scene.say(talk[3])
        assert (scene.turn, scene.verdicts[0][-1].reward) == (None, 1.0)


def test_tools_page_world_that_waits_judges_what_it_is_told(folder):
    world = find_world("stock.py:make")
    found = {}
    for said in ("tea", "ink"):
        scene = world.begin(0, 0)
        scene.say(said)
        found[said] = [each.reward for each in scene.verdicts[0]]
    assert found == {"tea": [1.0], "ink": [0.0]}
    voice = ChatSettings(Tokenizer.characters(), limit=8, context=64)
    (line,) = demonstrate(world, [world.begin(0, 0)], voice)
    assert line.reward == 1.0


def test_tools_page_world_of_several_turns_is_solved_in_three_guesses(folder):
    world = find_world("guess.py:make")
    secrets = set()
    for seed in range(40):
        scene = world.begin(seed, 0)
        secrets.add(scene.secret)
        while scene.turn is not None:
            scene.say(world.solve(scene))
        assert sum(verdict.reward for verdict in scene.verdicts[0]) == 1.0
    assert secrets == set(range(7))


@pytest.mark.slow
def test_tools_page_commands_run_with_fewer_updates(folder):
    run_examples()
    lines = re.findall(r"^(sterling .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 7
    for line in lines:
        asked = re.sub(r"--updates \d+", "--updates 1", line)
        batch = " --evaluate-episodes 2" if " train " in line else ""
        batch += " --prompts 2" if " grpo " in line else ""
        assert main(shlex.split(asked + batch)[1:]) == 0
