"""An environment ends a run that fails too often: by episodes and steps, never by seconds."""

import gymnasium
import numpy as np
import pytest

from sterling.envs.hosted.failure_limit import FailureLimit, with_resume_command
from sterling.envs.hosted.hosted_env import HostWorld
from sterling.envs.hosted.worker_pool import WorldFailed


class Counting(gymnasium.Env):
    """Its episodes have ``length`` steps; every ``period``-th step of the environment raises."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, period, length, counter):
        self.period, self.length, self.counter = period, length, counter

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        self.counter.append(0)  # an environment that is built anew goes on counting
        if len(self.counter) % self.period == 0:
            raise ValueError("a wheel\ncame off")
        return np.zeros(1, np.float32), 1.0, self.time == self.length, False, {}


def play(steps, period, length, **options):
    """Step a world of one environment so often, and return it."""
    counter = []
    world = HostWorld(
        lambda: Counting(period, length, counter), (0,), 1, workers=0, name="toy", **options
    )
    counter.clear()  # the check of the world made a step
    world.reset(None)
    try:
        for _ in range(steps):
            world.step(None, np.zeros((1, 1), np.int32), None)
    finally:
        world.close()
    return world


def test_three_failed_episodes_in_a_row_end_the_run():
    line = r"^Environment toy, copy 0 of seed 0, failed in 3 episodes in a row; the last failure: "
    line += r"ValueError: .*came off.*Fix the environment, or allow more failures with --env max"
    with pytest.raises(WorldFailed, match=line) as caught:
        play(100, period=20, length=50)
    assert "\n" not in str(caught.value)


def test_environment_that_raises_once_in_a_thousand_steps_never_ends_the_run():
    world = play(4_100, period=1_000, length=200)
    assert len(world.failures) == 4


def test_failures_of_more_than_one_percent_of_a_thousand_steps_end_the_run():
    with pytest.raises(WorldFailed, match="failed 11 times in 1,000 steps"):
        play(3_000, period=60, length=40)
    assert play(3_000, period=60, length=40, max_failures=100).failures


def test_failures_in_a_row_are_counted_for_each_copy_and_forgotten_after_an_episode():
    limit = FailureLimit(2, 3)
    first = np.array([True, False])
    for _ in range(2):
        assert [limit.count_failure(0) for _ in range(2)] == ["", ""]
        assert limit.count_failure(1) == ""
        limit.count_steps(~first, ~first)  # the other copy's episode ends
        limit.count_steps(first, first)
    assert [limit.count_failure(0) for _ in range(3)][2] == "failed in 3 episodes in a row"
    assert FailureLimit(1, 1).count_failure(0) == "failed"


def test_failures_more_than_a_thousand_steps_apart_are_forgotten():
    limit, step, ended = FailureLimit(1, 3), np.array([True]), np.array([False])
    for failure in range(11):
        limit.count_steps(step, np.array([True]))
        for _ in range(99 if failure else 100):
            limit.count_steps(step, ended)
        assert limit.count_failure(0) == ""  # the first and the last are 1,000 steps apart


@pytest.mark.parametrize(("most", "asked"), [(3, 1_000), (1_000, 10_000)])
def test_message_of_a_stopped_run_has_the_whole_command_that_resumes_it(most, asked):
    line = "copy 0 failed. Fix the environment, or allow more failures with --env max_failures=N."
    wanted = f"resume and allow more failures: sterling resume 'a b' --env max_failures={asked}"
    assert with_resume_command(line, "sterling resume 'a b'", most).endswith(wanted)
    assert with_resume_command("cannot be built", "sterling resume x", most) == "cannot be built"
