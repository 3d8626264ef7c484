"""Environments that raise, die, hang or talk nonsense, in real processes."""

import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import time

import cloudpickle
import gymnasium
import jax
import numpy as np
import psutil
import pytest
from gymnasium import spaces

from sterling.envs.hosted.hosted_env import HostWorld
from sterling.envs.hosted.worker_pool import WorldFailed
from sterling.experience.rollouts.rollout import Rollout

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@functools.cache
def fixed_keys():
    return jax.random.split(jax.random.key(0), 1)


FAULT = 9  # the action that makes an environment fail


class Fragile(gymnasium.Env):
    """Observes (its process, steps done); ``kind`` says how it fails when told to."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(10)

    def __init__(self, kind):
        self.kind, self.time = kind, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._seen(), {}

    def step(self, action):
        self.time += 1
        if action == FAULT:
            return getattr(self, self.kind)()
        return self._seen(), 1.0, False, False, {}

    def _seen(self):
        return np.array([float(os.getpid()), float(self.time)])

    def raises(self):
        raise ValueError("a wheel\ncame off")

    def dies(self):
        os.kill(os.getpid(), signal.SIGSEGV)

    def hangs(self):
        subprocess.Popen(["sleep", "600"])
        time.sleep(600)

    def answers_nan(self):
        return np.full(2, np.nan), 1.0, False, False, {}

    def changes_shape(self):
        return np.zeros(3), 1.0, False, False, {}

    def rewards_infinity(self):
        return self._seen(), float("inf"), False, False, {}


@pytest.fixture
def host():
    """Makes worlds, closes them, and sees to it that nothing is left of them."""
    before, made = set(psutil.Process().children(recursive=True)), []

    def make(kind, envs, workers, **options):
        made.append(HostWorld(lambda: Fragile(kind), (0,), envs, workers=workers, **options))
        made[-1].reset(fixed_keys())
        return made[-1]

    yield make
    for world in made:
        world.close()
    assert not set(psutil.Process().children(recursive=True)) - before


def step(world, *actions):
    return world.step(None, np.array([actions]), fixed_keys())[1]


FAULTS = {
    "raises": r"ValueError: a wheel came off \(test_worker_faults.py:\d+\)",
    "answers_nan": "observation holds NaN or infinity",
    "changes_shape": r"observation has shape \(3,\), but observation_space says \(2,\)",
    "rewards_infinity": "the reward inf",
    "dies": "its process died of SIGSEGV",
    "hangs": "no answer within 5 s",
}


@pytest.mark.parametrize("kind", FAULTS)
def test_worker_fault_cuts_the_episode_and_disturbs_no_other_process(host, kind):
    limit = {"timeout": 5.0} if kind == "hangs" else {}
    world = host(kind, envs=3, workers=2, **limit)  # 0 and 1 share a process, 2 has its own
    before = step(world, 0, 0, 0)
    failed = step(world, 0, FAULT, 0)
    reset = step(world, 0, 0, 0)
    after = step(world, 0, 0, 0)
    kills = kind in ("dies", "hangs")
    np.testing.assert_array_equal(failed.mask, [[not kills, False, True]])
    np.testing.assert_array_equal(failed.last, [[kills, True, False]])
    np.testing.assert_array_equal(failed.discount, [[1, 1, 1]])
    np.testing.assert_array_equal(failed.reward, [[float(not kills), 0, 1]])
    np.testing.assert_array_equal(failed.obs[0, 1], before.obs[0, 1])  # nothing of the fault
    np.testing.assert_array_equal(reset.mask, [[not kills, False, True]])
    assert not reset.last.any()
    assert after.mask.all()
    assert after.obs[0, :, 1].tolist() == [1 if kills else 4, 1, 4]
    assert (before.obs[0, 1, 0] != after.obs[0, 1, 0]) == kills  # the process is another
    assert before.obs[0, 2, 0] == after.obs[0, 2, 0]
    own = [reason for index, reason in world.failures if index == 1]
    assert len(own) == 1
    assert re.search(FAULTS[kind], own[0])
    assert [index for index, _ in world.failures] == ([0, 1] if kills else [1])


def test_a_worker_killed_between_steps_is_replaced(host):
    world = host("raises", envs=2, workers=2)
    victim = int(step(world, 0, 0).obs[0, 0, 0])
    os.kill(victim, signal.SIGKILL)
    answers = [step(world, 0, 0) for _ in range(3)]
    np.testing.assert_array_equal(np.concatenate([a.mask for a in answers])[:, 0], [0, 0, 1])
    np.testing.assert_array_equal(np.concatenate([a.last for a in answers])[:, 0], [1, 0, 0])
    assert np.concatenate([a.mask for a in answers])[:, 1].all()
    assert world.failures == [(0, "its process died of SIGKILL (out of memory?)")]


def test_environment_that_cannot_be_built_fails_at_once():
    def explode():
        raise OSError("no such simulator")

    for workers in (0, 1):
        line = r"cannot be built, reset and stepped once: OSError: no such simulator.*by hand"
        with pytest.raises(WorldFailed, match=line):
            HostWorld(explode, (0,), 2, workers=workers)
    with pytest.raises(WorldFailed, match="its process exited with code 3"):
        HostWorld(lambda: os._exit(3), (0,), 2, workers=2)


def test_failing_environment_reset_is_retried_then_given_up(host, tmp_path):
    class Moody(Fragile):
        """Its second and third resets raise, whoever asks."""

        def reset(self, **options):
            with (tmp_path / "resets").open("a") as file:
                file.write(".")
            if (tmp_path / "resets").stat().st_size in (3, 4):
                raise RuntimeError("not today")
            return super().reset(**options)

        def step(self, action):
            return *super().step(action)[:2], True, False, {}

    world = HostWorld(
        lambda: Moody("raises"), (0,), 1, workers=1
    )  # one reset to check, one to start
    world.reset(fixed_keys())
    ended, reset, after = step(world, 0), step(world, 0), step(world, 0)
    world.close()
    assert [bool(s.mask[0, 0]) for s in (ended, reset, after)] == [True, False, True]
    assert len(world.failures) == 2
    assert all("RuntimeError: not today" in reason for _, reason in world.failures)


def test_non_finite_actions_are_not_counted_as_environment_failures():
    class Push(Fragile):
        action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    world = HostWorld(lambda: Push("raises"), (0,), 2, workers=0, max_failures=1)
    world.reset(fixed_keys())
    answer = step(world, [np.float32(np.nan)], [np.float32(0.0)])
    np.testing.assert_array_equal(answer.mask, [[False, True]])
    np.testing.assert_array_equal(answer.last, [[True, False]])
    assert step(world, [np.float32(0.0)], [np.float32(0.0)]).obs[0, :, 1].tolist() == [0, 2]
    assert not world.failures


def test_interrupted_worker_step_is_not_taken_for_the_next(host):
    world = host("hangs", envs=2, workers=2)
    step(world, 0, 0)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    with pytest.raises(KeyboardInterrupt):
        step(world, FAULT, 0)
    signal.signal(signal.SIGALRM, previous)
    cut, reset, after = [step(world, 0, 0) for _ in range(3)]
    assert not cut.mask.any()
    assert cut.last.all()
    assert not reset.mask.any()
    assert after.mask.all()
    np.testing.assert_array_equal(after.obs[..., 1], 1)
    assert {reason for _, reason in world.failures} == {"its process was interrupted"}


def test_worker_crash_reaches_the_learner_as_masked_rows(host):
    class Saboteur:
        def act(self, obs, keys, explore):
            is_second_step = obs[:, :1, 1] == 2.0  # of the first environment
            action = jax.numpy.where(is_second_step, FAULT, 0)
            return jax.numpy.concatenate([action, action * 0], 1), {}

    world = host("raises", envs=2, workers=1)
    source, batch = Rollout.create(world, 6, fixed_keys()).live(Saboteur(), fixed_keys())
    assert source.tally.invalid.tolist() == [1]
    assert source.tally.episodes.tolist() == [0]
    mask, obs, next_obs = (np.asarray(x) for x in (batch.mask[0], batch.obs[0], batch.next_obs[0]))
    np.testing.assert_array_equal(mask[:, 0], [1, 1, 0, 0, 1, 1])
    np.testing.assert_array_equal(np.asarray(batch.discount), 1.0)
    np.testing.assert_array_equal(np.asarray(batch.last)[0, :, 0], [0, 0, 1, 0, 0, 0])
    np.testing.assert_array_equal((next_obs - obs)[mask][:, 1], 1.0)
    assert mask[:, 1].all()


def wait_until(true):
    deadline = time.monotonic() + 120.0
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("busy", [False, True])
def test_workers_do_not_outlive_a_killed_trainer(busy, tmp_path):
    there = str(tmp_path / "there")
    script = f"""
    import sys
    sys.path[:0] = {[str(pathlib.Path(__file__).parents[2])]!r}
    import os, time, gymnasium, jax, numpy as np
    from sterling.envs.hosted.hosted_env import HostWorld
    class Slow(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1e9, (1,), np.float64)
        action_space = gymnasium.spaces.Discrete(2)
        def reset(self, **options):
            self.steps = 0
            return np.array([float(os.getpid())]), {{}}
        def step(self, action):
            self.steps += 1
            if self.steps == 2:
                open({there!r}, "x").close()
                time.sleep(600)
            return np.zeros(1), 0.0, False, False, {{}}
    world = HostWorld(Slow, (0,), 1, workers=1)
    keys = jax.random.split(jax.random.key(0), 1)
    print(int(world.reset(keys)[1][0, 0, 0]), flush=True)
    if not {busy}:
        open({there!r}, "x").close()
        time.sleep(600)
    for _ in range(2):
        world.step(None, np.ones((1, 1), int), keys)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
        worker = int(trainer.stdout.readline())
        wait_until(pathlib.Path(there).exists)
        trainer.kill()
    wait_until(lambda: not psutil.pid_exists(worker))


@pytest.mark.slow
def test_worker_processes_end_without_close_or_main_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import gymnasium, jax, psutil\n"
        "from sterling.envs.hosted.hosted_env import HostWorld\n"
        "world = HostWorld('CartPole-v1', (0,), 2, workers=2)\n"
        "world.reset(jax.random.split(jax.random.key(0), 1))\n"
        "print(*[child.pid for child in psutil.Process().children()])\n"
    )
    root = str(pathlib.Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=env, check=True
    )
    workers = done.stdout.split()
    assert len(workers) == 2
    assert not any(psutil.pid_exists(int(worker)) for worker in workers)
    assert not done.stderr
