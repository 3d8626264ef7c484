"""What a call from Python gives that can be of no use is refused in one line, before any work.

In a Python of its own: in this one every annotation is checked.
"""

import subprocess
import sys

import gymnasium
import pytest

import sterling
from sterling.envs.hosted.hosted_env import HostWorld
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.settings import Settings
from sterling.types import Mistake

WRONG = """
import sys
import gymnasium
import sterling

env = gymnasium.make("CartPole-v1")
small = {"length": 16, "minibatch": 64, "width": 16, "evaluate_episodes": 0}
run = sterling.train("ppo", "probe:both", steps=256, out=sys.argv[1], **small)


def train(**wrong):
    sterling.train(**{"algorithm": "dqn", "environment": "probe:both", "steps": 5_000, **wrong})


def told(words, call, *given, **named):
    try:
        call(*given, **named)
    except sterling.Mistake as mistake:
        assert str(mistake).startswith(words) and "\\n" not in str(mistake), mistake
    else:
        raise AssertionError(words)


told("algorithm must be a name, as 'ppo', a file or an algorithm; got 5", train, algorithm=5)
told("algorithm must be a name, as 'ppo', a file or an algorithm; got None", train, algorithm=None)
told("environment must be a name, or a function", train, environment=5)
told("environment must be a name, or a function", train, environment=env)
told("out must be a path; got 5", train, out=5)
told("data must be a path, or a Dataset; got 5", train, data=5)
told("sampling must be text", train, data="log", sampling=5)
told("sinks must be a list of objects with write(row) and close(); got 5", train, sinks=5)
told("sinks must be a list", train, sinks=["tensorboard"])
told("preset must be True or False; got 'x'", train, preset="x")
told("env_options must be a dict", train, env_options="x")
told("online must be a dict", train, online=5)
told("guide must be a run's folder, or a Guidance", train, guide=5)
told("augment must be text", train, augment=5)
told("path must be a path; got 5", sterling.load, 5)
told("path must be a path; got 5", sterling.resume, 5)
told("environment must be a name, or a function", sterling.load, sys.argv[1], environment=5)
told("steps must be a whole number; got 'x'", sterling.resume, sys.argv[1], steps="x")
run = sterling.resume(sys.argv[1], steps=512.0)
assert run.result["steps"] == 512 and type(run.settings.steps) is int
"""


def test_train_arguments_of_a_wrong_type_are_named(tmp_path):
    words = [sys.executable, "-c", WRONG, str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_gymnasium_env_instance_is_refused_and_a_factory_suggested():
    with pytest.raises(Mistake, match=r"Write `lambda: TimeLimit\(\.\.\.\)`"):
        HostWorld(gymnasium.make("CartPole-v1"), (0,), 1)
    with pytest.raises(Mistake, match=r"\A5 is neither"):
        HostWorld(5, (0,), 1)


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("steps", "x", "steps must be a whole number; got 'x'"),
        ("seeds", "x", "seeds must be a whole number; got 'x'"),
        ("seeds", [0, 0], "seeds must be at least one, all different"),
        ("envs", -4, "envs must be a whole number of at least 1; got -4"),
        ("strategy", "mop", "Unknown strategy 'mop'\. Use"),
        ("config", 5, "config must be an object of fields; got 5"),
        ("log_every", 2.5, "log_every must be a whole number; got 2.5"),
    ],
)
def test_edited_config_json_values_are_validated(name, wrong, said):
    plain = resolve_settings("ppo", "probe:both", steps=5_000, seeds=2).to_json()
    assert Settings.from_json(plain) == resolve_settings("ppo", "probe:both", steps=5_000, seeds=2)
    with pytest.raises(Mistake, match=said):
        Settings.from_json(plain | {name: wrong})


def test_env_factory_is_refused_for_a_run_with_a_named_environment():
    plain = resolve_settings("ppo", "probe:both", steps=5_000).to_json()
    with pytest.raises(Mistake, match="environment is stored as 'probe:both'\. Leave environment"):
        Settings.from_json(plain, lambda: gymnasium.make("CartPole-v1"))


@pytest.mark.slow
def test_failed_start_of_seed_processes_leaves_the_run_folder_usable(tmp_path):
    small = {"length": 16, "width": 16, "evaluate_episodes": 0, "preset": False}
    asked = {"steps": 256, "seeds": 2, "strategy": "processes", "out": tmp_path / "run", **small}
    with pytest.raises(Mistake, match=r"the process of seed .* Set minibatch between 1 and"):
        sterling.train("ppo", "probe:both", minibatch=4_096, **asked)
    run = sterling.train("ppo", "probe:both", minibatch=64, **asked)
    assert run.result["steps"] == 256
    assert run.settings.config.minibatch == 64
    assert sterling.load(tmp_path / "run").settings.config.minibatch == 64
