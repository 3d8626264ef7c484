"""Worlds by name."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling import random_keys
from sterling.envs import make, names
from sterling.envs.compiled import envpool_env
from sterling.types import Mistake, World


def unwrapped(world: Any) -> str:
    while hasattr(world, "world"):
        world = world.world
    return type(world).__name__


def test_importing_the_registry_imports_no_backend() -> None:
    backends = "('envpool', 'gymnax', 'mujoco', 'sterling.envs.traced_world')"
    code = f"import sys, sterling.envs; print([m for m in {backends} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.slow
def test_making_an_envpool_world_does_not_import_gymnax() -> None:
    code = "import sys, sterling.envs as e; e.make('CartPole-v1', (0,), 1)"
    code += "; print('gymnax' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("CartPole-v1", "TracedWorld"),
        ("envpool:CartPole-v1", "EnvPoolWorld"),
        ("classic:CartPole-v1", "TracedWorld"),
        ("gymnax:CartPole-v1", "TracedWorld"),
        ("gymnasium:CartPole-v1", "HostWorld"),
        ("Catch-bsuite", "TracedWorld"),
        ("probe:cut-continuous", "TracedWorld"),
        ("gymnasium.envs:Blackjack-v1", "HostWorld"),
    ],
)
def test_env_name_selects_its_backend(name: str, kind: str) -> None:
    options = {"workers": 0} if kind == "HostWorld" else {}
    world = make(name, (0, 1), 2, **options)
    assert unwrapped(world) == kind
    assert isinstance(world, World)
    assert (world.seeds, world.spec.envs, world.stack) == (2, 2, 1)
    world.close()


def test_env_factory_function_is_accepted_as_environment() -> None:
    world = make(lambda: gymnasium.make("Pendulum-v1"), (0,), 1, workers=0)
    assert unwrapped(world) == "HostWorld"
    np.testing.assert_array_equal(world.spec.action.high, [1.0])
    world.close()
    with pytest.raises(
        Mistake, match=r"no arguments. Set its options \(gravity\) inside the function"
    ):
        make(lambda: gymnasium.make("Pendulum-v1"), (0,), 1, gravity=3.0)


def test_gymnasium_registered_ids_are_found() -> None:
    gymnasium.register("Mine-v0", lambda: gymnasium.make("CartPole-v1"), max_episode_steps=5)
    world = make("Mine-v0", (0,), 1, workers=0)
    assert unwrapped(world) == "HostWorld"
    world.close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("HalfCheeta-v5", "Unknown environment 'HalfCheeta-v5'; did you mean HalfCheetah-v5"),
        ("cartpole-v1", "did you mean CartPole-v1"),
        ("gymnax:Brakout-MinAtar", "did you mean gymnax:Breakout-MinAtar"),
        ("probe:cutt", "did you mean probe:cut"),
        ("data/hopper", "data/hopper is neither a dataset"),
        ("ALE/Pong-v5", "Unknown environment 'ALE/Pong-v5': it is called Pong-v5 here"),
        ("ALE/Pon-v5", "did you mean Pong-v5"),
        ("xyzzy", "Unknown environment 'xyzzy'; `sterling list environments` lists all"),
        ("no_such_package:Mine-v0", "package no_such_package cannot be imported"),
    ],
)
def test_unknown_env_name_suggests_the_nearest(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for known in [each for each in gymnasium.registry if each.startswith("ALE/")]:
        monkeypatch.delitem(gymnasium.registry, known)  # there if a test has imported ale_py
    with pytest.raises(Mistake, match=said):
        make(name, (0,), 1)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("CartPole-v1", {"max_steps": 3}, "no option 'max_steps'; did you mean max_episode_steps"),
        ("classic:CartPole-v1", {"gravity": 3}, "no option 'gravity'"),
        ("gymnasium:CartPole-v1", {"gravity": 3}, "no option 'gravity'"),
        ("Pong-v5", {"stack_num": 2}, "Use stack=2"),
    ],
)
def test_unknown_env_option_is_named(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(Mistake, match=said):
        make(name, (0,), 1, **options)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"purpose": "test"}, "purpose 'test'"),
        ({"purpose": "trained/from-8"}, "purpose 'trained/from-8'"),
        ({"envs": 0}, "1 seeds and 0 envs. Give at least one of each"),
        ({"seeds": ()}, "0 seeds and 1 envs. Give at least one of each"),
        ({"stack": 0}, "stack=0 is not possible. Give a whole number of at least 1"),
        ({"strategy": "loop"}, "strategy 'loop'"),
    ],
)
def test_make_env_refuses_invalid_arguments(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(Mistake, match=said):
        make("probe:cut", **{"seeds": (0,), "envs": 1, **arguments})


def test_a_time_limit_reaches_every_backend() -> None:
    for name in (
        "CartPole-v1",
        "classic:CartPole-v1",
        "gymnax:CartPole-v1",
        "gymnasium:CartPole-v1",
    ):
        options: dict[str, Any] = {"workers": 0} if name.startswith("gymnasium") else {}
        world = make(name, (0,), 1, max_episode_steps=3, **options)
        key = random_keys.for_seeds(jnp.zeros(1, jnp.int32), "world", 0)
        state, _ = world.reset(key)
        move = world.step if options else jax.jit(world.step)
        last = []
        for action in (0, 1, 0):
            state, step = move(state, jnp.full((1, 1), action), key)
            last.append((bool(step.last[0, 0]), float(step.discount[0, 0])))
        assert last == [(False, 1.0), (False, 1.0), (True, 1.0)]
        world.close()


def test_atari_settings_depend_on_the_purpose() -> None:
    purposes = ("train", "train/from-8", "evaluate")
    train, resumed, evaluate = (make("Pong-v5", (0,), 1, purpose=p) for p in purposes)
    for world in (train, resumed, evaluate):
        assert world.spec.obs.shape == (4, 84, 84)
        assert world.stack == 4
    assert type(train).__name__ == type(resumed).__name__ == "ClipReward"
    assert type(evaluate).__name__ == "FrameStack"
    assert make("Pong-v5", (0,), 1, stack=2).spec.obs.shape == (2, 84, 84)
    assert make("Pong-v5", (0,), 1, repeat_action_probability=0.25).stack == 4


def test_env_names_list_and_search_every_backend() -> None:
    every = names()
    assert len(every["envpool"]) > 1_600
    assert "Breakout-MinAtar" in every["gymnax"]
    assert "cut" in every["probe"]
    found = names("cartp*v1")
    assert "CartPole-v1" in found["envpool"]
    assert found["gymnax"] == found["classic"] == ["CartPole-v1"]
    assert found["probe"] == []


def test_env_registry_falls_back_without_envpool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    assert envpool_env.names() == []
    assert unwrapped(make("CartPole-v1", (0,), 1)) == "TracedWorld"
    with pytest.warns(
        UserWarning, match="EnvPool is not installed: FrozenLake-v1 is stepped from Python"
    ):
        world = make("FrozenLake-v1", (0,), 1, workers=0)
    assert unwrapped(world) == "HostWorld"
    world.close()
    with pytest.raises(Mistake, match="EnvPool is not installed"):
        make("Pong-v5", (0,), 1)
