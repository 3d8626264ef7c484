"""Masks of allowed actions that environments give by a method or in ``info``."""

from __future__ import annotations

import sys
from typing import Any

import cloudpickle
import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling import envs, random_keys
from sterling.types import Mistake

cloudpickle.register_pickle_by_value(sys.modules[__name__])
SMALL = {"steps": 16, "length": 8, "minibatch": 8, "epochs": 1, "width": 8, "preset": False}
PAIRS = [[1, 0], [0, 1]]  # of two choices: both the same
WAYS = ("method", "info")


class Masked(gymnasium.Env):
    """Gives ``masks`` in turn, the last one for ever, and takes no action that is forbidden."""

    observation_space: Any = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, action: Any, *masks: Any, way: str = "method"):
        self.action_space, self.masks, self.way, self.time = action, masks, way, 0
        if way == "method":
            self.action_masks = self.mask

    def mask(self) -> Any:
        return self.masks[min(self.time, len(self.masks) - 1)]

    def seen(self) -> tuple[Any, dict[str, Any]]:
        info = {"action_mask": self.mask()} if self.way == "info" else {}
        return np.zeros(2, np.float32), info

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self.seen()

    def step(self, action):
        assert self.allows(action), f"the forbidden action {action}"
        self.time += 1
        obs, info = self.seen()
        return obs, float(np.sum(action)), False, False, info

    def allows(self, action: Any) -> bool:
        mask = np.asarray(self.mask())
        if isinstance(self.action_space, spaces.Discrete):
            return bool(mask.ravel()[action])
        return bool(mask[tuple(action - self.action_space.start)])


class Named(Masked):
    """With a dict as its observation."""

    observation_space = spaces.Dict({"place": Masked.observation_space})

    def seen(self) -> tuple[Any, dict[str, Any]]:
        obs, info = super().seen()
        return {"place": obs}, info


def world_of(*how: Any, workers: int = 0, **named: Any) -> Any:
    return envs.make(lambda: Masked(*how, **named), seeds=(0,), envs=1, workers=workers)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("action", "masks"),
    [
        (spaces.MultiDiscrete([2, 2], start=[0, 3]), [PAIRS, [[0, 0], [1, 0]]]),
        (spaces.MultiDiscrete([2, 3]), [[[0, 0, 1], [1, 1, 0]], [[0, 1, 0], [0, 0, 0]]]),
    ],
)
def test_reported_action_mask_with_an_axis_per_choice_allows_combinations(
    way, action, masks, workers
):
    world = world_of(action, *masks, way=way, workers=workers)
    count = int(np.prod(action.nvec))
    assert world.spec.action == spaces.Discrete(count)
    reset = random_keys.for_seeds(jax.numpy.arange(1), "reset", 0)
    state, obs = world.reset(reset)
    for turn, number in [(0, 0), (1, -1), (1, 0)]:
        expected = np.ravel(masks[turn])
        np.testing.assert_array_equal(np.asarray(obs["action_mask"])[0, 0], expected)
        chosen = np.flatnonzero(expected)[number]
        state, step = world.step(state, np.full((1, 1), chosen, np.int32), reset)
        told = np.stack(np.unravel_index(chosen, action.nvec)) + action.start
        assert float(step.reward[0, 0]) == told.sum()
        obs = step.obs
    inner = world.world
    world.close()
    assert not inner.failures


@pytest.mark.parametrize("way", WAYS)
def test_policy_asks_for_the_reported_action_mask_and_keeps_to_it(way):
    """As quickstart.md has it; Masked fails at a forbidden action, so that the run would too."""
    make = lambda: Masked(spaces.MultiDiscrete([2, 2]), PAIRS, way=way)  # noqa: E731
    run = sterling.train(
        "ppo", make, envs=2, evaluate_episodes=0, env_options={"workers": 0}, **SMALL
    )
    assert not run.result["world_failures"]
    obs, _ = make().reset()
    for mask in (PAIRS, np.array(PAIRS, bool)):
        for number in range(4):
            asked = {"observation": obs, "action_mask": mask}
            action = run.policy(asked, explore=True) if number else run.player()(asked)
            assert action.shape == (2,)
            assert action[0] == action[1]
    for act in (run.policy, run.player()):
        with pytest.raises(
            Mistake, match=r"the action mask allows no action, so .* in <lambda .*>"
        ):
            act({"observation": obs, "action_mask": np.zeros((2, 2))})
        with pytest.raises(Mistake, match=r'give \{"observation": obs, "action_mask": mask\}$'):
            act(obs)


def test_policy_asks_for_a_missing_action_mask_of_a_dict_observation():
    run = sterling.train(
        "ppo",
        lambda: Named(spaces.Discrete(6), [[0, 1, 0], [0, 0, 0]]),  # one choice, in a grid
        envs=1,
        evaluate_episodes=0,
        env_options={"workers": 0},
        **SMALL,
    )
    obs, _ = Named(spaces.Discrete(6), [1]).reset()
    with pytest.raises(Mistake, match=r'give \{\*\*obs, "action_mask": mask\}$'):
        run.policy(obs)
    assert run.policy({**obs, "action_mask": np.array([[0, 1, 0], [0, 0, 0]])}) == 1
    assert run.policy({**obs, "action_mask": [0, 0, 0, 0, 1, 0]}, explore=True) == 4


SAID = {"method": r"action_masks\(\)", "info": r'info\["action_mask"\]'}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("action", "masks", "said"),
    [
        (
            spaces.MultiDiscrete([2, 3]),
            [np.ones((3, 2))],
            r"gave a mask of shape \(3, 2\). Give one of shape \(5,\), .*, or of shape \(2, 3\)",
        ),
        (spaces.MultiDiscrete([2, 3]), [([1, 1], [1])], r"gave a mask of shape \(3,\). Give one"),
        (spaces.MultiDiscrete([2, 3]), [[[1, 1], [1, 1, 1]]], r"rows of unequal length. .* \(5,\)"),
        (spaces.Discrete(3), [[0, 1]], r"of shape \(2,\). Give one of shape \(3,\), .* one row.$"),
        (spaces.Discrete(3), [None], r"gave a mask of shape \(\)"),
        (spaces.Discrete(3), [[0, 2, 1]], r"gave \[0 2 1\]. A mask holds only 1 \(allowed\) and 0"),
        (
            spaces.MultiDiscrete([2, 2]),
            [PAIRS, [1, 1, 1, 1]],
            r"of shape \(4,\), but the first had \(2, 2\). Give the same shape",
        ),
    ],
)
def test_reported_action_mask_of_invalid_values_is_refused(way, action, masks, said):
    with pytest.raises(Mistake, match=f"{SAID[way]} .*{said}") as caught:
        world_of(action, *masks, way=way)
    assert "observation" not in str(caught.value)


def test_reported_action_mask_of_floats_is_converted():
    world = world_of(spaces.Discrete(3), np.array([0.0, 1.0, 1.0]))
    _, obs = world.reset(random_keys.for_seeds(jax.numpy.arange(1), "reset", 0))
    np.testing.assert_array_equal(obs["action_mask"], [[[0, 1, 1]]])
    assert obs["action_mask"].dtype == np.int8
    world.close()
