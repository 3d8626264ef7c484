"""Options with values that cannot be, and names that are not the environment's to take."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium
import pytest

import sterling
from sterling import envs
from sterling.cli import main
from sterling.envs.env_options import RUN_OPTIONS
from sterling.envs.hosted.worker_pool import WorldFailed
from sterling.envs.make_world import make
from sterling.types import Mistake

WHOLE = "is not possible. Give a whole number of at least"
EVERY = ("CartPole-v1", "envpool:CartPole-v1", "gymnax:CartPole-v1", "gymnasium:CartPole-v1")


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_episode_steps": "abc"}, f"max_episode_steps='abc' {WHOLE} 1"),
        ({"max_episode_steps": 2.5}, f"max_episode_steps=2.5 {WHOLE} 1"),
        ({"max_episode_steps": -2}, f"max_episode_steps=-2 {WHOLE} 1"),
        ({"max_episode_steps": True}, f"max_episode_steps=True {WHOLE} 1"),
        ({"max_episode_steps": 10**30}, f"{WHOLE} 1 and at most 2147483647"),
        ({"stack": 2.5}, f"stack=2.5 {WHOLE} 1"),
        ({"stack": "abc"}, f"stack='abc' {WHOLE} 1"),
        ({"flatten": "abc"}, "flatten='abc' is not possible. Give true or false"),
        ({"name": "abc"}, "has no option 'name'; it has"),
    ],
)
def test_env_options_refuse_impossible_values(
    name: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(Mistake, match=said):
        envs.make(name, (0,), 1, **options)


@pytest.mark.parametrize(
    ("name", "none"), [(each, 0) for each in EVERY if "pool" not in each and "ium" not in each]
    + [("gymnasium:CartPole-v1", -1), *((each, None) for each in EVERY)],
)  # fmt: skip
def test_env_options_accept_no_time_limit(name: str, none: int | None) -> None:
    options = {"workers": 0} if name.startswith("gymnasium") else {}
    world = envs.make(name, (0,), 1, max_episode_steps=none, **options)
    assert (world.seeds, world.spec.envs) == (1, 1)
    world.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": -1}, f"workers=-1 {WHOLE} 0"),
        ({"workers": 1.5}, f"workers=1.5 {WHOLE} 0"),
        ({"workers": "abc"}, f"workers='abc' {WHOLE} 0"),
        ({"timeout": "abc"}, "timeout='abc' is not possible. Give a number of seconds above 0"),
        ({"timeout": 0}, "timeout=0 is not possible"),
        ({"timeout": float("nan")}, "timeout=nan is not possible"),
        ({"timeout": float("inf")}, r"timeout=inf is not possible. .* up to 1e\+09"),
        ({"max_failures": 0}, f"max_failures=0 {WHOLE} 1"),
        ({"max_failures": None}, f"max_failures=None {WHOLE} 1"),
    ],
)
def test_env_options_of_worker_processes_are_validated(options: dict[str, Any], said: str) -> None:
    for environment in ("gymnasium:CartPole-v1", lambda: gymnasium.make("CartPole-v1")):
        with pytest.raises(Mistake, match=said):
            envs.make(environment, (0,), 1, **options)


def test_env_options_refuse_a_negative_envpool_thread_count() -> None:
    with pytest.raises(Mistake, match=f"num_threads=-1 {WHOLE} 0"):
        envs.make("envpool:CartPole-v1", (0,), 1, num_threads=-1)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("DeepSea-bsuite", {"size": "abc"}, "DeepSea-bsuite cannot be made with size='abc' "),
        ("gymnax:CartPole-v1", {"gravity": [1, 2]}, r"made with gravity=\[1, 2\] \(TypeError: "),
        ("gymnax:CartPole-v1", {"max_steps_in_episode": "abc"}, "max_steps_in_episode='abc' "),
        ("FrozenLake-v1", {"size": "abc"}, "FrozenLake-v1 cannot be made with size='abc'"),
        ("gymnasium:FrozenLake-v1", {"desc": 3, "workers": 0}, "cannot be built, .* ValueError: "),
        ("gymnasium:Reacher-v5", {"spec": 3, "workers": 0}, "TypeError: .* argument 'spec' "),
    ],
)
def test_env_options_refused_by_the_environment_are_reported_in_one_line(
    name: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises((Mistake, WorldFailed), match=said) as caught:
        envs.make(name, (0,), 1, **options)
    assert "\n" not in str(caught.value)


def test_env_options_refuse_arguments_that_the_run_sets() -> None:
    parameters = inspect.signature(make).parameters
    assert set(parameters) - {"stack", "flatten", "action_bound", "options"} == set(RUN_OPTIONS)
    for name in RUN_OPTIONS:
        with pytest.raises(Mistake, match=f"^'{name}' cannot be an option of an environment"):
            sterling.train("ppo", "CartPole-v1", steps=512, env_options={name: "map"})


def test_env_options_error_is_one_line_on_the_command_line(
    tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "ppo", "CartPole-v1", "--steps", "512", "--out", str(tmp_path / "run")]
    assert main([*words, "--env", "seeds=3"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == (
        "sterling: 'seeds' cannot be an option of an environment: the run sets it. "
        "Give the run --seeds."
    )
