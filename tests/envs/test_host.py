"""What a host world tells of a Gymnasium environment that behaves."""

import functools
import sys
import threading

import cloudpickle
import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

from sterling import envs
from sterling.data.space_json import to_agent_action, to_stored_action
from sterling.envs.actions.action_bounds import to_env_action
from sterling.envs.hosted.hosted_env import HostWorld
from sterling.types import Mistake

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@functools.cache
def fixed_keys():
    return jax.random.split(jax.random.key(0), 2)


class Walk(gymnasium.Env):
    """Observes (steps done, the action before); ends, is cut, or both, after ``length`` steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(5, start=-2)

    def __init__(self, length=3, terminated=True, truncated=False):
        self.length, self.how, self.time = length, (terminated, truncated), 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.array([0.0, 100.0 + self.np_random.random()]), {}

    def step(self, action):
        self.time += 1
        over = self.time >= self.length
        obs = np.array([float(self.time), float(action)])
        return obs, 1.5, over and self.how[0], over and self.how[1], {}


class Parts(gymnasium.Env):
    """Observes a dict of everything and acts with a tuple of boxes; forbids actions by a method."""

    observation_space = spaces.Dict(
        {
            "z": spaces.Box(0, 255, (2, 3, 1), np.uint8),
            "a": spaces.Tuple((spaces.Discrete(4, start=1), spaces.MultiBinary(2))),
        }
    )
    action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(np.array([0, 0])), {}

    def step(self, action):
        assert self.action_masks()[action[0]]
        assert self.action_masks()[2 + action[1]]
        return self._seen(action), 0.0, False, False, {}

    def _seen(self, action):
        return {
            "z": np.full((2, 3, 1), 7, np.uint8),
            "a": (1 + action[1], np.array([1, action[0]])),
        }

    def action_masks(self):
        return np.array([False, True, False, False, True])


def run(world, actions):
    """All steps' answers, with the first observation."""
    _, obs = world.reset(fixed_keys()[: world.seeds])
    return obs, [world.step(None, action, fixed_keys()[: world.seeds])[1] for action in actions]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("terminated", "truncated", "discount"), [(True, False, 0), (False, True, 1), (True, True, 0)]
)
def test_hosted_env_masks_the_reset_step_and_keeps_final_observations(
    workers, terminated, truncated, discount
):
    world = HostWorld(lambda: Walk(3, terminated, truncated), (0, 1), 2, workers=workers)
    obs, steps = run(world, [np.full((2, 2), choice) for choice in (0, 1, 2, 3, 4)])
    world.close()
    assert obs.shape == (2, 2, 2)
    assert obs.dtype == np.float32
    assert world.spec.obs.dtype == np.float32
    assert world.spec.action == spaces.Discrete(5)
    seen = np.stack([step.obs[0, 0] for step in steps])
    np.testing.assert_array_equal(seen[:3], [[1, -2], [2, -1], [3, 0]])  # choices count from -2
    assert seen[3, 0] == 0
    assert seen[3, 1] >= 100
    np.testing.assert_array_equal(seen[4], [1, 2])
    assert [step.last.all() for step in steps] == [False, False, True, False, False]
    assert [step.mask.all() for step in steps] == [True, True, True, False, True]
    assert [step.reward[1, 1] for step in steps] == [1.5, 1.5, 1.5, 0.0, 1.5]
    assert [step.discount[1, 1] for step in steps] == [1, 1, discount, 1, 1]
    assert not world.failures


def first_obs(seeds, workers, purpose="train"):
    world = HostWorld(Walk, seeds, 2, workers=workers, purpose=purpose)
    obs, steps = run(world, [np.zeros((len(seeds), 2), int)] * 5)
    world.close()
    return obs, steps[3].obs


def test_hosted_env_copies_are_seeded_by_seed_index_and_purpose():
    both, both_next = first_obs((3, 4), 2)
    alone, alone_next = first_obs((4,), 0)
    assert len(np.unique(np.stack([both, both_next])[..., 1])) == 8  # later resets differ as well
    np.testing.assert_array_equal(both[1:], alone)
    np.testing.assert_array_equal(both_next[1:], alone_next)
    assert not np.intersect1d(alone[..., 1], first_obs((4,), 0, "test")[0][..., 1]).size


def test_hosted_env_observes_dict_observations_with_action_masks():
    world = HostWorld(Parts, (0,), 2, workers=1)
    obs, (step,) = run(world, [np.array([[[1, 2], [1, 2]]])])
    world.close()
    assert set(world.spec.obs.spaces) == {"a", "z", "action_mask"}
    assert obs["z"].shape == (1, 2, 2, 3, 1)
    assert obs["z"].dtype == np.uint8
    np.testing.assert_array_equal(step.obs["a"][0], [[3, 3]])
    np.testing.assert_array_equal(step.obs["a"][1], [[[1, 1], [1, 1]]])
    np.testing.assert_array_equal(step.obs["action_mask"], [[[0, 1, 0, 0, 1]] * 2])
    assert not world.failures


def test_hosted_env_adds_the_action_mask_of_info_to_the_observation():
    class Informed(Walk):
        action_space = spaces.Discrete(2)

        def reset(self, **options):
            return super().reset(**options)[0], {"action_mask": np.array([1, 0], np.int8)}

        def step(self, action):
            return *super().step(action)[:4], {"action_mask": np.array([0, 1], np.int8)}

    world = HostWorld(Informed, (0,), 1, workers=0)
    obs, (step,) = run(world, [np.zeros((1, 1), int)])
    assert obs["observation"].shape == (1, 1, 2)
    np.testing.assert_array_equal(obs["action_mask"], [[[1, 0]]])
    np.testing.assert_array_equal(step.obs["action_mask"], [[[0, 1]]])


@pytest.mark.slow
def test_hosted_env_workers_receive_locally_registered_ids_and_closures():
    gymnasium.register("OnlyHere-v0", entry_point=lambda: Walk(1))
    length = 1
    for factory in ("OnlyHere-v0", lambda: Walk(length)):
        world = HostWorld(factory, (0,), 1, workers=1)
        _, (step,) = run(world, [np.zeros((1, 1), int)])
        world.close()
        assert step.last.all()


def test_hosted_env_actions_keep_bounds_and_dtype_of_the_environment():
    class Push(Walk):
        action_space = spaces.Box(-0.1, 0.1, (2,), np.float64)

        def step(self, action):
            assert self.action_space.contains(action), action
            return super().step(action[0])

    world = HostWorld(Push, (0,), 1, workers=0)
    assert world.spec.action.dtype == np.float32
    for bound in (world.spec.action.low, world.spec.action.high):
        run(world, [bound[None, None]])  # in float32, 0.1 is more than in float64
    assert not world.failures
    assert np.isclose(world.spec.action.high, 0.1).all()


class LooksForJax(Walk):
    """Observes whether JAX is loaded."""

    def reset(self, **options):
        return np.array([0.0, float("jax" in sys.modules)]), {}


@pytest.mark.parametrize("registered", [False, True])
def test_workers_do_not_load_jax(registered, monkeypatch):
    factory = type("Here", (LooksForJax,), {})  # sent as its source: this file imports JAX
    if registered:
        monkeypatch.setattr(gymnasium.envs.registration, "registry", {})
        gymnasium.register("LooksForJax-v0", factory)
        factory = "LooksForJax-v0"
    world = HostWorld(factory, (0,), 1, workers=1)
    obs, _ = run(world, [])
    world.close()
    assert obs[0, 0, 1] == 0


def broken(**changes):
    return type("Broken", (Walk,), changes)


BREACHES = {
    r"shape \(3,\), but observation_space says \(2,\)": broken(
        reset=lambda self, **options: (np.zeros(3), {})
    ),
    "type <U1, but observation_space says float32": broken(
        reset=lambda self, **options: (np.array(["a", "b"]), {})
    ),
    r"must return \(obs, info\)": broken(reset=lambda self, **options: np.zeros(2)),
    "step\\(\\) returned 4 values": broken(step=lambda self, action: (np.zeros(2), 0.0, False, {})),
    "reward of shape \\(1,\\)": broken(
        step=lambda self, action: (np.zeros(2), np.zeros(1), False, False, {})
    ),
    "the reward nan": broken(
        step=lambda self, action: (np.zeros(2), float("nan"), False, False, {})
    ),
    "holds NaN": broken(reset=lambda self, **options: (np.full(2, np.nan), {})),
    "has no observation_space": broken(observation_space=None),
    "part of type Text": broken(observation_space=spaces.Text(3)),
    r"observation\['b'\] is missing from something of type ndarray": broken(
        observation_space=spaces.Dict(b=spaces.Discrete(2))
    ),
    r"observation\[1\] is missing from 1 values": broken(
        observation_space=spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]),
        reset=lambda self, **options: ((0,), {}),
    ),
    "returned something of type int": lambda: 3,
}


@pytest.mark.parametrize("line", BREACHES)
def test_hosted_env_names_a_breach_of_the_gymnasium_api(line):
    with pytest.raises(Mistake, match=line) as caught:
        HostWorld(BREACHES[line], (0,), 1, workers=0)
    assert "\n" not in str(caught.value)


def test_hosted_env_names_a_breach_of_the_api_in_a_worker():
    with pytest.raises(Mistake, match="returned something of type int"):
        HostWorld(lambda: 3, (0,), 1, workers=1)
    with pytest.raises(Mistake, match="`Nonsense` doesn't exist"):
        HostWorld("Nonsense-v0", (0,), 1)
    with pytest.raises(Mistake, match="Write `lambda: Walk"):
        HostWorld(Walk(), (0,), 1)
    lock = threading.Lock()
    with pytest.raises(Mistake, match="workers=0"):
        HostWorld(lambda: lock, (0,), 1)


HUGE = np.finfo(np.float32)
SOME = np.array([0.5, 1.0], np.float32)
TAKEN = {  # an agent's action, and the environment's
    "start": (spaces.Discrete(3, start=-1), np.int32(2), 1),
    "several": (spaces.MultiDiscrete([2, 3], start=[5, -1]), np.array([1, 0]), [6, -1]),
    "bits": (spaces.MultiBinary(2), np.array([1, 0]), [1, 0]),
    "stretched": (spaces.Box(-4.0, 8.0, (2,), np.float64), SOME, [5.0, 8.0]),
    "free": (spaces.Box(-np.inf, np.inf, (2,), np.float64), 9.0 * SOME, [4.5, 9.0]),
    "huge": (spaces.Box(HUGE.min, HUGE.max, (2,), np.float32), 9.0 * SOME, [4.5, 9.0]),
    "wide": (spaces.Box(-1, 2**20, (2,), np.int64), 9.0 * SOME - 6.0, [-1, 3]),
    "whole": (spaces.Box(0, 7, (2,), np.int16), SOME, [5, 7]),
    "bytes": (spaces.Box(0, 255, (2,), np.uint8), np.array([-1.5, 3.0], np.float32), [0, 255]),
}


class Takes(gymnasium.Env):
    """Observes the action before, which must be one of its own."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def __init__(self, space):
        self.action_space = space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return np.zeros(2, np.float32) + np.asarray(action, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("name", TAKEN)
def test_hosted_env_sends_actions_in_the_environments_own_units(name):
    """By ``to_world`` as by a step."""
    space, action, expected = TAKEN[name]
    world = envs.make(lambda: Takes(space), (0,), 1, workers=0)
    try:
        own = np.asarray(world.to_world(np.asarray(action)[None]))[0]
        assert space.contains(own)
        np.testing.assert_array_equal(own, expected)
        _, (answer,) = run(world, [np.asarray(action)[None, None]])
        np.testing.assert_array_equal(answer.obs[0, 0], np.zeros(2) + expected)
    finally:
        world.close()


def test_hosted_env_rounds_and_clips_integer_actions_before_casting():
    """In the world as in logs: a cast would wrap around and truncate."""
    given = np.array([300.0, -3.0, 2.7, -0.9, 1e30], np.float32)
    np.testing.assert_array_equal(
        to_env_action(spaces.Box(0, 255, (5,), np.uint8), given), [255, 0, 3, 0, 255]
    )
    far = to_env_action(spaces.Box(-(2**63), 2**63 - 1, (5,), np.int64), given)
    np.testing.assert_array_equal(far, [300, -3, 3, -1, 2**63 - 1])
    space = spaces.Box(np.array([5, -4]), np.array([10, 4]), dtype=np.int64)
    world = envs.make(lambda: Takes(space), (0,), 1, workers=0)
    unit = np.random.default_rng(0).uniform(-1.2, 1.2, (50, 2)).astype(np.float32)
    done = world.to_world(unit)
    np.testing.assert_array_equal(done, to_stored_action(space, unit))
    np.testing.assert_array_equal(np.unique(done[:, 0]), np.arange(5, 11))
    np.testing.assert_array_equal(world.to_world(to_agent_action(space, done)), done)
