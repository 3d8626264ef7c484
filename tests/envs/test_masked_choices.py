"""Masks of several choices: none is ignored, and whoever must act has an option in every choice."""

import functools

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import sterling
from sterling import envs, random_keys
from sterling.checking.environments.random_play import Trajectory, play_randomly
from sterling.checking.environments.world_rules import step_checks
from sterling.checking.review_findings import run_checks
from sterling.envs.hosted.vector_env import VectorWorld
from sterling.envs.hosted.worker_pool import WorldFailed
from sterling.nets.special_layers.goal_networks import goal_sizes
from sterling.problem.action_choices import choice_sizes, without_option
from sterling.types import Mistake, Spec

PAIR = spaces.MultiDiscrete([2, 3])
FREE, STUCK = [1, 1, 0, 1, 1], [1, 1, 0, 0, 0]
NESTED = {
    "dict": spaces.Dict(
        {"turn": spaces.Discrete(3, start=1), "move": spaces.MultiDiscrete([2, 2])}
    ),
    "tuple": spaces.Tuple((spaces.Discrete(4), spaces.MultiBinary(2))),
    "numbers": spaces.Dict({"at": spaces.Box(-2.0, 2.0, (2,)), "what": spaces.Discrete(3)}),
    "axes": spaces.MultiDiscrete([[2, 3], [2, 2]]),
}


@functools.cache
def fixed_keys():
    return random_keys.for_seeds(jnp.zeros(1, jnp.int32), "test", 0)


class Masked(gymnasium.Env):
    """Gives the mask of ``masks[time]``, the last one for ever; its episodes end after ``length``
    steps. It takes no action that a mask of one row forbids."""

    def __init__(self, action, masks, way="info", length=99, cut=False):
        self.action_space, self.masks, self.way = action, masks, way
        self.length, self.cut, self.time = length, cut, 0
        seen = {"x": spaces.Box(0.0, 99.0, (1,), np.float32)}
        if way == "observation":
            seen["action_mask"] = spaces.MultiBinary(np.shape(masks[0]))
        self.observation_space = spaces.Dict(seen)
        if way == "method":
            self.action_masks = self.mask

    def mask(self):
        mask = self.masks[min(self.time, len(self.masks) - 1)]
        return mask if isinstance(mask, (tuple, dict)) else np.array(mask)

    def seen(self):
        obs = {"x": np.full(1, self.time, np.float32)}
        obs |= {"action_mask": self.mask()} if self.way == "observation" else {}
        return obs, {"action_mask": self.mask()} if self.way == "info" else {}

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self.seen()

    def step(self, action):
        assert self.allows(action), f"the forbidden action {action}"
        self.time += 1
        obs, info = self.seen()
        over = self.time == self.length
        return obs, 1.0, over and not self.cut, over and self.cut, info

    def allows(self, action):
        mask, sizes = self.mask(), choice_sizes(self.action_space)
        if isinstance(mask, (tuple, dict)) or len(mask) != sum(sizes):
            return True
        if isinstance(action, dict):
            parts = [action[key] - getattr(self.action_space[key], "start", 0)
                     for key in sorted(action) if key != "at"]  # fmt: skip
        else:
            parts = action if isinstance(action, tuple) else [action]
        chosen = np.concatenate([np.ravel(part) for part in parts])
        return bool(mask[np.cumsum((0, *sizes[:-1])) + chosen].all())


def world_of(*how, **named):
    factory = lambda: Masked(*how, **named)  # noqa: E731
    return envs.make(factory, (0,), 1, workers=0, max_failures=1)


WAYS = ("method", "info", "observation")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("action", "masks", "said"),
    [
        (PAIR, [STUCK], r"after reset\(\) the action mask leaves choice 2 of 2 without an option"),
        (PAIR, [FREE, [0, 0, 0, 1, 1]], "after step 1 of an episode .* choice 1 of 2 without an o"),
        (PAIR, [np.zeros((2, 3), int)], r"after reset\(\) the action mask allows no action"),
        (spaces.Discrete(3), [[0, 0, 0]], r"after reset\(\) the action mask allows no action"),
    ],
)
def test_mask_that_leaves_a_choice_without_an_option_is_refused_in_one_line(
    way, action, masks, said
):
    with pytest.raises(
        Mistake, match=f"Environment <lambda test_masked.*>: {said}.* end the episode.$"
    ):
        world_of(action, masks, way=way)


@pytest.mark.parametrize("way", WAYS)
def test_choice_without_an_option_in_a_later_step_names_environment_step_and_choice(way):
    world = world_of(PAIR, [FREE, FREE, FREE, STUCK, FREE], way=way)
    said = "Environment <lambda test_m.*after step 3 of an episode .* leaves choice 2 of 2 without"
    with pytest.raises(WorldFailed, match=said):
        play_randomly(world, (0,), 5, 0)
    world.close()


@pytest.mark.parametrize("cut", [False, True])
def test_mask_after_the_last_step_of_an_episode_may_leave_choices_without_an_option(cut):
    world = world_of(PAIR, [FREE, FREE, STUCK], length=2, cut=cut)
    played = play_randomly(world, (0,), 5, 0)
    world.close()
    assert not world.failures
    np.testing.assert_array_equal(played.obs["action_mask"][1, 0, 0], STUCK)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("kind", "masks"),
    [
        ("dict", [[0, 1, 1, 0, 0, 0, 1], [1, 0, 0, 1, 0, 1, 1]]),
        ("tuple", [[0, 0, 1, 0, 0, 1, 1, 1]]),
        ("numbers", [[0, 1, 0], [1, 0, 1]]),
        ("axes", [[0, 1, 0, 0, 1, 1, 0, 0, 1]]),
    ],
)
def test_masks_of_nested_actions_are_obeyed(kind, masks, way):
    world = world_of(NESTED[kind], masks, way=way)
    assert world.spec.obs["action_mask"].shape == (len(masks[0]),)
    played = play_randomly(world, (0,), 20, 0)
    world.close()
    np.testing.assert_array_equal(played.first["action_mask"][0, 0], masks[0])
    assert played.mask.all()


def test_masks_of_nested_actions_may_be_given_part_by_part():
    parts = {"move": (np.array([0, 1]), np.array([1, 0])), "turn": np.array([0, 0, 1])}
    world = world_of(NESTED["dict"], [parts])
    played = play_randomly(world, (0,), 3, 0)
    np.testing.assert_array_equal(played.first["action_mask"][0, 0], [0, 1, 1, 0, 0, 0, 1])
    world.close()
    world = world_of(NESTED["numbers"], [{"at": None, "what": np.array([0, 1, 0])}])
    np.testing.assert_array_equal(
        play_randomly(world, (0,), 2, 0).obs["action_mask"][:, 0, 0], [[0, 1, 0]] * 2
    )
    world.close()


def test_nested_choices_allowed_in_combination_become_one_choice():
    pair = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(3)})
    world = world_of(pair, [[[0, 0, 1], [1, 0, 0]]])
    assert world.spec.action == spaces.Discrete(6)
    acted = world.to_world(np.array([2, 3], np.int32))
    np.testing.assert_array_equal([acted["a"], acted["b"]], [[0, 1], [2, 0]])
    world.close()


@pytest.mark.parametrize(
    ("action", "masks", "said"),
    [
        (NESTED["dict"], [[1, 1, 1]], r"gave a mask of shape \(3,\). Give one of shape \(7,\)"),
        (NESTED["dict"], [{"jump": [1]}], "gave a part 'jump' that actions do not have"),
        (NESTED["dict"], [{"turn": [1, 1]}], "gave no mask for MultiDiscrete"),
        (NESTED["tuple"], [([1, 1, 1, 1],)], "gave 1 parts. Give one of shape"),
        (PAIR, [([1, 1, 1], [1, 1])], r"rows of \(3, 2\) entries for choices among \(2, 3\)"),
        (spaces.Box(-1.0, 1.0, (2,)), [[1, 1]], "without a choice that a mask could forbid"),
        (NESTED["numbers"], [np.ones((3, 2))], r"shape \(3, 2\). Give one of shape \(3,\)"),
        (spaces.MultiDiscrete([2, 4]), [np.ones((3, 2))], r"\(3, 2\). Give one of shape \(6,\)"),
    ],
)
@pytest.mark.parametrize("way", ["method", "info"])
def test_mask_that_cannot_be_obeyed_is_refused(action, masks, said, way):
    with pytest.raises(Mistake, match=said):
        world_of(action, masks, way=way)


def test_observed_mask_that_cannot_be_obeyed_is_refused():
    with pytest.raises(Mistake, match=r"\(4,\) does not fit .* Give one of shape \(7,\)"):
        world_of(NESTED["dict"], [[1, 1, 1, 1]], way="observation")
    with pytest.raises(Mistake, match=r"\(3, 2\) does not fit .* Give one of shape \(6,\)"):
        world_of(spaces.MultiDiscrete([2, 4]), [np.ones((3, 2), int)], way="observation")
    with pytest.raises(Mistake, match="That has no choices: leave out action_mask"):
        world_of(spaces.Box(-1.0, 1.0, (2,)), [[1, 1]], way="observation")


class FromStepOnly(Masked):
    """Gives a mask at every step, but none at the reset."""

    def reset(self, *, seed=None, options=None):
        return super().reset()[0], {}


def test_mask_that_only_steps_give_is_refused():
    with pytest.raises(Mistake, match=r'step\(\) gave info\["action_mask"\], but reset\(\) gave n'):
        envs.make(lambda: FromStepOnly(PAIR, [[1] * 5]), (0,), 1, workers=0)


def test_mask_in_the_info_of_a_vector_environment_is_refused():
    make = lambda count: SyncVectorEnv([lambda: Masked(PAIR, [FREE])] * count)  # noqa: E731
    world = VectorWorld(make, (0,), 2)
    with pytest.raises(Mistake, match=r"gives info\['action_mask'\], .* Observe it as an entry"):
        world.reset(fixed_keys())
    world.close()


def test_learners_of_goals_refuse_a_mask_that_their_policies_do_not_read():
    vector = spaces.Box(-1.0, 1.0, (2,), np.float32)
    parts = dict.fromkeys(("observation", "achieved_goal", "desired_goal"), vector)
    assert goal_sizes("hiql", Spec(spaces.Dict(parts), PAIR, 1)) == (2, 2)
    masked = spaces.Dict({**parts, "action_mask": spaces.MultiBinary(5)})
    with pytest.raises(Mistake, match="hiql cannot obey the action_mask that is observed"):
        goal_sizes("hiql", Spec(masked, PAIR, 1))


@pytest.mark.parametrize(
    ("row", "said"),
    [((0, FREE), ""), ((2, STUCK), "after step 2 the action mask leaves choice 2 of 2 without an")],
)
def test_check_finds_a_choice_without_an_option_while_the_episode_goes_on(row, said):
    seen = {"action_mask": np.tile(np.array(FREE, np.int8), (4, 1, 1, 1))}
    seen["action_mask"][row[0], 0, 0] = row[1]
    seen["action_mask"][3, 0, 0] = STUCK  # after the last step
    last = np.array([0, 0, 0, 1], bool).reshape(4, 1, 1)
    ones, first = np.ones((4, 1, 1), np.float32), {"action_mask": seen["action_mask"][0]}
    played = Trajectory(first, seen, ones, ones, last, ones > 0, {})
    spec = Spec(spaces.Dict({"action_mask": spaces.MultiBinary(5)}), PAIR, 1)
    rule = "every choice has an allowed action"
    found = [each for each in run_checks(step_checks(spec, played, None)) if each.what == rule]
    assert len(found) == 1
    assert found[0].failed == bool(said)
    assert said in found[0].said


def test_options_of_each_choice_are_counted_over_any_leading_axes():
    mask = np.array([[[1, 0, 0, 0, 1], [0, 0, 0, 1, 0]]])
    np.testing.assert_array_equal(without_option(mask, (2, 3)), [[[False, False], [True, False]]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "mask"),
    [("dict", [0, 1, 1, 0, 0, 0, 1]), ("numbers", [0, 1, 0]), ("tuple", [0, 0, 1, 0, 0, 1, 1, 1])],
)
def test_ppo_obeys_masks_of_nested_actions_in_training_and_as_a_policy(kind, mask):
    """Masked fails at an action that is not allowed, so that the run would too."""
    env = Masked(NESTED[kind], [mask])
    run = sterling.train(
        "ppo", lambda: Masked(NESTED[kind], [mask], length=9), steps=32, envs=2, length=8,
        minibatch=8, epochs=1, width=8, preset=False, evaluate_episodes=1,
        env_options={"workers": 0},
    )  # fmt: skip
    assert not run.result["world_failures"]
    obs, _ = env.reset()
    for explore in (False, True, True, True):
        assert env.allows(run.policy({**obs, "action_mask": np.array(mask)}, explore=explore))
    with pytest.raises(Mistake, match=r"the action mask .*, so no action can be chosen in <lambda"):
        run.policy({**obs, "action_mask": np.zeros(len(mask))})
