"""The examples and the page docs/deploy.md run as they are printed."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import deployed_worlds as worlds
import numpy as np
import pytest

from sterling.cli_options import parse_command_line
from sterling.deploy.export_policy import export_policy
from sterling.deploy.formats.c_runner import compiler
from sterling.envs.gymnasium_export import as_gymnasium

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deploy.md").read_text()
SPEC = importlib.util.spec_from_file_location(
    "atari_loop", ROOT / "examples" / "deploy" / "atari_loop.py"
)
atari_loop = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(atari_loop)


def test_deploy_example_loop_plays_pictures_with_the_runs_actions(tmp_path):
    world = worlds.PicturesOfChoices
    run, env = worlds.new_run("dqn", world, width=16), as_gymnasium(world())
    export_policy(run, tmp_path / "policy.onnx", steps=5)
    policy, seen = atari_loop.OnnxPolicy(str(tmp_path / "policy.onnx")), []

    def watched(obs):
        seen.append((obs, policy(obs)))
        return seen[-1][1]

    assert atari_loop.play(watched, env, 30) == []
    assert [action for _, action in seen] == [int(run.policy(obs)) for obs, _ in seen]


@pytest.mark.slow
def test_deploy_example_atari_loop_sees_the_runs_observations(tmp_path):
    run = worlds.new_run("ppo", "Pong-v5")
    made = export_policy(run, tmp_path / "pong.onnx", steps=8)
    assert made.agreement.largest == 0
    env = atari_loop.make_atari("ALE/Pong-v5")
    assert env.observation_space.shape == run.world().spec.obs.shape
    assert env.action_space.n == run.world().spec.action.n
    policy, seen = atari_loop.OnnxPolicy(str(tmp_path / "pong.onnx")), []

    def watched(obs):
        seen.append((np.array(obs), policy(obs)))
        return seen[-1][1]

    atari_loop.play(watched, env, 12)
    assert [action for _, action in seen] == [int(run.policy(obs)) for obs, _ in seen]


def test_deploy_page_commands_parse():
    lines = re.findall(r"^ *(sterling (?:export|serve|train) .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 8
    for line in lines:
        parse_command_line(shlex.split(line, comments=True)[1:])


@pytest.mark.slow
def test_deploy_page_python_runs(tmp_path):
    """With a small run in the place of the page's; the C program is compiled and run too."""
    export = {"CartPole-v1": worlds.new_run("ppo", "CartPole-v1")}
    run = export["CartPole-v1"]
    for suffix in (".npz", ".onnx", ".c"):
        export_policy(run, tmp_path / f"policy{suffix}", steps=5)
    memory = worlds.new_run("recurrent-ppo", "Pendulum-v1", width=16, length=8, minibatch=64)
    export_policy(memory, tmp_path / "memory.onnx", steps=5)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        if "127.0.0.1" in block:
            compile(block, "deploy.md", "exec")
            continue
        words = [sys.executable, "-c", block]
        subprocess.run(words, cwd=tmp_path, check=True, timeout=120, capture_output=True)
    (program,) = re.findall(r"```c\n(.*?)```", PAGE, re.DOTALL)
    if compiler() is not None:
        (tmp_path / "main.c").write_text(program)
        (line,) = re.findall(r"^ *cc (.*)$", PAGE, re.MULTILINE)
        subprocess.run([compiler(), *shlex.split(line)], cwd=tmp_path, check=True)
        done = subprocess.run(["./main"], cwd=tmp_path, check=True, capture_output=True, text=True)
        assert done.stdout.strip() in ("0", "1")
