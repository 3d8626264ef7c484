"""`sterling check` goes on after a check that crashes, and names what it did not check."""

import re
import types

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.algorithms.online import dqn, r2d2, recurrent_ppo
from sterling.checking import algorithm_review, check_algorithm, check_environment
from sterling.checking.review_findings import CheckFailed
from sterling.types import Spec, Step

STEPPED, BUILT = "it can be reset and stepped", "it can be built, reset and stepped once"


class Odd(gymnasium.Env):
    """Its 150th step in a process fails; the steps before are right."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.np_random.random(1).astype(np.float32), {}

    def step(self, action):
        self.count += 1
        type(self).steps += 1
        if type(self).steps == 150:
            raise ValueError("odd action")
        return self.np_random.random(1).astype(np.float32), 0.0, self.count > 3, False, {}


class Counting:
    """A World on the host, of episodes of three steps."""

    traced, exact = False, False

    def __init__(self, seeds, envs):
        self.seeds, self.close = len(seeds), lambda: None
        self.spec = Spec(spaces.Box(0.0, 3.0, (1,), np.float32), spaces.Discrete(2), envs=envs)

    def reset(self, keys):
        self.count = np.zeros((self.seeds, self.spec.envs), np.int32)
        return None, self.seen()

    def step(self, state, action, keys):
        fresh = self.count == 3
        self.count = np.where(fresh, 0, self.count + 1)
        last, reward = self.count == 3, np.zeros(fresh.shape, np.float32)
        return None, Step(self.seen(), reward, np.float32(1.0) - last, last, ~fresh)

    def seen(self):
        return self.count[..., None].astype(np.float32)


class Broken(Counting):
    """It cannot be stepped."""

    def step(self, state, action, keys):
        raise ZeroDivisionError("no step")


class Leaving(Counting):
    """Its step ends Python."""

    def step(self, state, action, keys):
        raise SystemExit(3)


class Static:
    """A Task whose step cannot be traced."""

    obs = spaces.Box(0.0, 1.0, (1,), np.float32)
    action = spaces.Discrete(2)

    def reset(self, key):
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, state, action, key):
        raise TypeError("not ready")


def wrong(findings):
    return [one.what for one in findings if one.failed]


def test_check_goes_on_after_a_crash_with_the_steps_before_it():
    found = {one.what: one for one in check_environment(Odd, {"workers": 0}, quick=True)}
    assert wrong(found.values()) == [STEPPED]
    assert "ValueError: odd action (test_checking_crashes.py:" in found[STEPPED].said
    assert re.search(r"after \d+ steps of 8 copies", found[STEPPED].said)
    assert found["episodes end"].verdict == "holds"
    assert found["Gymnasium's own checks"].verdict == "holds"
    assert len(found) == 14


def test_check_tells_the_rate_of_an_environment():
    found = {one.what: one.said for one in check_environment(Counting, quick=True)}
    assert re.fullmatch(r"120 steps of 8 copies, [\d,]+ steps/s", found[STEPPED])


@pytest.mark.parametrize("kind", [Broken, Leaving])
def test_check_of_a_world_that_cannot_be_stepped_names_what_it_did_not_check(kind):
    found = list(check_environment(kind, quick=True))
    assert wrong(found) == [STEPPED]
    left = [one for one in found if one.verdict == "not checked"]
    assert len(left) == len(found) - 2
    assert {one.said for one in left} == {"it cannot be stepped"}


def test_check_of_a_task_that_cannot_be_traced_is_a_finding():
    found = list(check_environment(Static(), quick=True))
    assert wrong(found) == [BUILT]
    assert "not ready" in found[0].said
    assert found[-1].verdict == "not checked"


def crash(*given):
    raise KeyError("crash")


def test_check_of_an_algorithm_without_known_needs_is_a_finding():
    parts = {name: staticmethod(getattr(dqn, name)) for name in ("init", "act", "learn")}
    made = type("Faulty", (), {"Config": dqn.Config, **parts, "needs": staticmethod(crash)})
    found = list(check_algorithm(made))
    assert wrong(found)[-1] == "needs(config)"
    assert found[-1].verdict == "not checked"


@pytest.mark.slow  # runs of an algorithm
def test_check_of_an_algorithm_goes_on_after_act_crashes_and_counts_what_is_left_out():
    names = ("needs", "init", "learn", "value")
    parts = {name: staticmethod(getattr(dqn, name)) for name in names}
    made = type("Faulty", (), {"Config": dqn.Config, **parts, "act": staticmethod(crash)})
    found = list(check_algorithm(made, quick=True))
    assert "act returns actions in the action space (discrete actions)" in wrong(found)
    whats = {one.what: one for one in found}
    assert whats["learn separates ends from truncations (discrete actions)"].failed  # it acts, too
    assert whats["it solves probe:both (policies that use observations)"].failed
    left = [one for one in found if one.said == "left out by --quick"]
    assert len(left) == 6


def test_value_of_an_algorithm_with_memory_must_take_a_key():
    def value(state, past, obs):
        return obs

    algorithm = types.SimpleNamespace(Config=dqn.Config, recall=None, value=value)
    checks = {what: check for what, check, _ in algorithm_review._form_checks(algorithm)}
    with pytest.raises(CheckFailed, match="value cannot be called with state, past, obs, key"):
        checks["value(state, past, obs, key)"]()
    for module in (r2d2, recurrent_ppo):
        checks = {what: check for what, check, _ in algorithm_review._form_checks(module)}
        assert checks["value(state, past, obs, key)"]() == ""
