"""Masks of allowed actions in every form that worlds give them."""

from __future__ import annotations

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling import envs, random_keys
from sterling.types import Mistake

SMALL = {"steps": 32, "length": 8, "minibatch": 8, "epochs": 1, "width": 16, "preset": False}


class Grid(gymnasium.Env):
    """Two choices; only the pair that sums to ``goal`` is allowed, and pays what it is worth."""

    action_space = spaces.MultiDiscrete([2, 3])

    def __init__(self, shape: tuple[int, ...] = (2, 3)):
        parts = {"action_mask": spaces.MultiBinary(shape), "goal": spaces.Discrete(4)}
        self.observation_space = spaces.Dict(parts)
        self.shape, self.goal = shape, 0

    def _seen(self):
        self.goal = (self.goal + 1) % 3
        mask, first = np.zeros(self.shape, np.int8), min(self.goal, 1)
        mask[first, self.goal - first] = 1
        return {"action_mask": mask, "goal": self.goal}

    def reset(self, *, seed=None, options=None):
        return self._seen(), {}

    def step(self, action):
        assert sum(action) == self.goal, "an action that was not allowed"
        return self._seen(), float(10 * action[0] + action[1]), False, False, {}


def test_multidiscrete_action_mask_over_combinations_becomes_discrete():
    world = envs.make(Grid, seeds=(0,), envs=1, workers=0)
    assert world.spec.action == spaces.Discrete(6)
    reset = random_keys.for_seeds(jax.numpy.arange(1), "reset", 0)
    state, obs = world.reset(reset)
    for _ in range(8):
        mask = np.asarray(obs["action_mask"])
        assert mask.shape == (1, 1, 6)
        assert mask.sum() == 1
        action = mask.argmax(-1).astype(np.int32)
        state, step = world.step(state, action, reset)
        assert float(step.reward[0, 0]) == 10 * (action[0, 0] // 3) + action[0, 0] % 3
        assert np.array_equal(world.to_world(action)[0, 0], [action[0, 0] // 3, action[0, 0] % 3])
        obs = step.obs
    world.close()


@pytest.mark.slow
def test_ppo_policy_respects_a_mask_over_action_combinations():
    """Grid fails at an action that is not allowed, so that the run would too."""
    run = sterling.train("ppo", Grid, seeds=1, envs=1, evaluate_episodes=0, **SMALL)
    assert not run.result["failed_seeds"]
    seen = Grid()._seen()
    for action in (run.policy(seen), run.policy(seen, explore=True)):  # as the environment has it
        assert seen["action_mask"][tuple(action)]
    several = jax.tree.map(lambda x: np.stack([x] * 3), seen)
    assert all(seen["action_mask"][tuple(action)] for action in run.policy(several, explore=True))
    with pytest.raises(Mistake, match=r"the shape action_mask \(6,\), goal \(\); got \(3,\)$"):
        run.policy(np.zeros(3))
    with pytest.raises(Mistake, match=r"action_mask \(6,\), goal \(\); got action_mask \(6,\)$"):
        run.policy({"action_mask": seen["action_mask"]})


def test_action_mask_of_a_wrong_shape_is_refused():
    with pytest.raises(Mistake, match=r"shape \(3, 3\) does not fit .* Give one of shape \(5,\)"):
        envs.make(lambda: Grid((3, 3)), seeds=(0,), envs=1, workers=0)


@pytest.mark.parametrize(
    ("name", "action", "entries"),
    [
        ("Tetris-v0", spaces.Discrete(40), 40),  # a turn and a column: mask (4, 10)
        ("FlatPack-v0", spaces.Discrete(8100), 8100),  # mask (25, 4, 9, 9)
        ("Cleaner-v0", spaces.MultiDiscrete([4, 4, 4]), 12),  # three workers: mask (3, 4)
        ("Snake-v1", spaces.Discrete(4), 4),
    ],
)
def test_jumanji_action_masks_are_observed(name, action, entries):
    """The first action that the mask allows is taken: no first step ends an episode."""
    world = envs.make(name, seeds=(0, 1), envs=2)
    assert world.spec.action == action
    state, obs = world.reset(random_keys.for_seeds(jax.numpy.arange(2), "reset", 0))
    mask = np.asarray(obs["action_mask"])
    assert mask.shape == (2, 2, entries)
    if isinstance(action, spaces.Discrete):
        choice = mask.argmax(-1).astype(np.int32)
    else:
        choice = mask.reshape(2, 2, 3, 4).argmax(-1).astype(np.int32)
    _, step = jax.jit(world.step)(
        state, choice, random_keys.for_seeds(jax.numpy.arange(2), "world", 0)
    )
    assert not np.asarray(step.last).any()
    world.close()
