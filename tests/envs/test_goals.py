"""Judges of goals answer what worlds answer, also through what stands around a world."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array
from gymnasium import spaces

from sterling import envs, random_keys
from sterling.envs.hosted.hosted_env import HostWorld
from sterling.envs.probes.goal_probe import GoalProbe
from sterling.envs.traced_world import TracedWorld
from sterling.envs.world_wrappers import ActionRepeat, ClipReward, TimeLimit
from sterling.problem.goal_obs import ACHIEVED, DESIRED, OBSERVATION
from sterling.types import Mistake

ONE = constant_array([0], np.int32)


def lived(world, steps, hold=15):
    """Rows ``(time, env)`` of a policy that goes on in a random direction for a while."""
    state, _ = world.reset(random_keys.for_seeds(ONE, "reset", 0))
    step = jax.jit(world.step) if world.traced else world.step
    rng, rows = np.random.default_rng(0), []
    for time in range(steps):
        if time % hold == 0:
            shape = (1, world.spec.envs, *world.spec.action.shape)
            low = isinstance(world.spec.action, spaces.Discrete)
            action = rng.integers(0, 2, shape) if low else rng.uniform(-1, 1, shape)
            action = jnp.asarray(action, jnp.int32 if low else jnp.float32)
        state, answer = step(state, action, random_keys.for_seeds(ONE, "world", time))
        rows.append(jax.tree.map(lambda x: np.asarray(x)[0], answer))
    return jax.tree.map(lambda *each: np.stack(each), *rows)


def check(world, rows):
    """Every step is judged as the world judged it; returns those steps' rewards and discounts."""
    judge = jax.jit(jax.vmap(jax.vmap(world.spec.judge)))
    reward, discount = judge(*(jnp.asarray(rows.obs[name]) for name in (ACHIEVED, DESIRED)))
    np.testing.assert_allclose(np.asarray(reward)[rows.mask], rows.reward[rows.mask], atol=1e-5)
    np.testing.assert_array_equal(np.asarray(discount)[rows.mask], rows.discount[rows.mask])
    return rows.reward[rows.mask], rows.discount[rows.mask]


SIMULATED = {
    "FetchReach-v4": {"distance_threshold": 0.1},
    "FetchReachDense-v4": {},
    "FetchPush-v4": {},
    "FetchSlide-v4": {},
    "FetchPickAndPlace-v4": {},
    "HandReach-v3": {"distance_threshold": 0.08},
    "PointMaze_Open-v3": {"continuing_task": False},
    "PointMaze_OpenDense-v3": {"reset_target": True},
}


@pytest.mark.parametrize(
    "name",
    [
        "FetchReach-v4",
        *(pytest.param(each, marks=pytest.mark.slow) for each in list(SIMULATED)[1:]),
    ],
)
def test_goal_judges_of_simulators_equal_their_rewards(name):
    world = envs.make(name, (0,), 16, **SIMULATED[name])
    try:
        rows = lived(world, 220)
        reward, discount = check(world, rows)
        assert len(np.unique(reward)) > 1 or "Slide" in name  # some reach what is wanted
        assert (discount == 0.0).any() == (name == "PointMaze_Open-v3")
        (success,) = world.spec.channels
        if "Dense" not in name:
            np.testing.assert_array_equal(rows.channels[success][rows.mask], reward >= 1.0
                                          if "Maze" in name else reward == 0.0)  # fmt: skip
    finally:
        world.close()


def test_envpool_goal_with_rotations_has_no_goal_judge():
    world = envs.make("HandManipulateBlock-v1", (0,), 1)
    assert world.spec.judge is None
    assert not world.spec.channels
    world.close()


class Scaled(GoalProbe):
    """The probe world, in which what is wanted is where one is now and then, worth 5."""

    def step(self, state, action, key):
        state, obs, _, _, cut = super().step(state, action, key)
        obs = {**obs, DESIRED: jnp.where(state.place == 1.0, obs[ACHIEVED], obs[DESIRED])}
        reward, discount = self.judge(obs[ACHIEVED], obs[DESIRED])
        return state, obs, reward, discount == 0.0, cut

    def judge(self, achieved, desired):
        reward, discount = super().judge(achieved, desired)
        return 5.0 * reward, discount


@pytest.mark.parametrize("continuous", [False, True])
def test_goal_judge_passes_through_wrappers(continuous):
    inner = TracedWorld(Scaled(continuous), (0,), 8)
    for world, most in ((inner, 5.0), (TimeLimit(ClipReward(inner), 3), 1.0)):
        reward, _ = check(world, lived(world, 40, hold=2))
        assert reward.max() == most
    assert ActionRepeat(inner, 2).spec.judge is None  # nobody sees what is achieved in between


def test_goal_judge_without_goal_observations_is_refused():
    class Lost(GoalProbe):
        @property
        def obs(self):
            return spaces.Box(-1.0, 1.0, (2,), np.float32)

    with pytest.raises(Mistake, match="Observe a Dict of observation, achieved_goal"):
        TracedWorld(Lost(), (0,), 1)


class Walk(gymnasium.Env):
    """A walk on a line to a random place, whose goals only its steps judge."""

    def __init__(self):
        where = spaces.Box(-9.0, 9.0, (1,), np.float64)
        names = (OBSERVATION, ACHIEVED, DESIRED)
        self.observation_space = spaces.Dict(dict.fromkeys(names, where))
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.time = np.zeros(1), 0
        self.goal = self.np_random.integers(-2, 3, 1).astype(float)
        return self._seen(), {}

    def step(self, action):
        self.at, self.time = self.at + (2.0 * action - 1.0), self.time + 1
        reward = -float(away(self.at, self.goal) > 0.5)
        return self._seen(), reward, reward == 0.0, self.time >= 6, {}

    def _seen(self):
        return {OBSERVATION: self.at, ACHIEVED: self.at, DESIRED: self.goal}


def away(achieved, desired):
    return np.linalg.norm(achieved - desired, axis=-1)


class Judged(Walk):
    """As Gymnasium's goal environments are."""

    def compute_reward(self, achieved, desired, info):
        return -(away(achieved, desired) > 0.5).astype(np.float32)

    def compute_terminated(self, achieved, desired, info):
        return away(achieved, desired) <= 0.5


class Single(Walk):
    """Judges one goal at a time."""

    def compute_reward(self, achieved, desired, info):
        return -float(away(achieved, desired).max() > 0.5)


def test_gymnasium_goal_environment_is_judged_by_compute_reward():
    world = HostWorld(Judged, (0,), 4, workers=0)
    try:
        reward, discount = check(world, lived(world, 60, hold=1))
        assert {0.0, -1.0} == set(reward.tolist())
        assert (discount == 0.0).any()
    finally:
        world.close()


@pytest.mark.parametrize(
    ("factory", "words"),
    [(Single, "shape .* for 2 rows"), (Walk, "but no compute_reward")],
)
def test_goal_judge_refuses_missing_or_unbatched_compute_reward(factory, words):
    world = HostWorld(factory, (0,), 1, workers=0, name="walk")
    with pytest.raises(Mistake, match=words):
        world.spec.judge(jnp.zeros(1), jnp.zeros(1))
    world.close()
