"""Masks in the info of PettingZoo's agents: none is ignored, and none is read as another form."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling import random_keys
from sterling.envs.hosted.hosted_env import HostWorld
from sterling.types import Mistake


@functools.cache
def fixed_keys():
    return random_keys.for_seeds(jnp.zeros(1, jnp.int32), "test", 0)


class Told:
    """Two agents with two actions each; ``masks`` are in their info, after the first step ``later``
    ones. An agent is paid its action, and takes none that its mask forbids."""

    metadata = {"name": "told"}  # noqa: RUF012
    possible_agents = ("red", "green")

    def __init__(self, masks, later=None):
        self.masks, self.later, self.agents = masks, later or masks, []

    def observation_space(self, agent):
        return spaces.Box(0.0, 9.0, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def _answer(self, masks):
        pairs = zip(self.agents, masks, strict=True)
        infos = {agent: {} if mask is None else {"action_mask": np.array(mask, np.int8)}
                 for agent, mask in pairs}  # fmt: skip
        return {agent: np.zeros(1, np.float32) for agent in self.agents}, infos

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return self._answer(self.masks)

    def step(self, actions):
        for agent, mask in zip(self.agents, self.masks, strict=True):
            assert mask is None or mask[actions[agent]]
        none = dict.fromkeys(self.agents, False)
        obs, infos = self._answer(self.later)
        return obs, dict(actions), none, none, infos

    def close(self):
        pass


def first_masks(world):
    return world.reset(fixed_keys())[1]["action_mask"][0, 0]


def test_masks_of_two_agents_with_two_actions_are_not_read_as_combinations():
    world = HostWorld(lambda: Told([[0, 1], [1, 0]]), (0,), 1, workers=0)
    assert world.spec.action == spaces.MultiDiscrete([2, 2])
    np.testing.assert_array_equal(first_masks(world), [[0, 1], [1, 0]])
    assert world.step(None, np.array([[[1, 0]]]), fixed_keys())[1].reward.item() == 1.0
    assert not world.failures


def test_mask_of_one_agent_alone_is_obeyed():
    world = HostWorld(lambda: Told([None, [0, 1]]), (0,), 1, workers=0)
    np.testing.assert_array_equal(first_masks(world), [[1, 1], [0, 1]])


@pytest.mark.parametrize(
    ("masks", "later", "said"),
    [
        ([[1, 1], [0, 0]], None, r"after reset\(\) the action mask allows no action to agent gre"),
        ([[1, 1], [1, 1]], [[0, 0], [1, 1]], "after step 1 .* no action to agent red. Allow"),
        ([[1, 1], [1]], None, r"'action_mask' of agent green has shape \(1,\). Give .* \(2,\)"),
        ([[1, 1], [1, 1]], [None, [1, 1]], "info of agent red has no 'action_mask', but reset"),
        ([None, [1, 1]], [[1, 1], [1, 1]], r"agent red has an 'action_mask', but reset\(\) gave n"),
    ],
)
def test_mask_of_an_agent_that_cannot_be_obeyed_is_refused(masks, later, said):
    with pytest.raises(Mistake, match=said):
        HostWorld(lambda: Told(masks, later), (0,), 1, workers=0)


def test_mask_of_agents_without_choices_is_refused():
    class Boxes(Told):
        def action_space(self, agent):
            return spaces.Box(-1.0, 1.0, (2,))

    with pytest.raises(Mistake, match="without a choice that a mask could forbid"):
        HostWorld(lambda: Boxes([[1, 1], [1, 1]]), (0,), 1, workers=0)
