"""What Gymnasium environments report in `info`, or by a reward that is a vector."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

from sterling import envs
from sterling.envs.compiled import envpool_env
from sterling.problem.channels import Channel, parse_channels
from sterling.types import Mistake


class Costly(gymnasium.Env):
    """Three steps; info says a cost in the first two, and two terms of the reward."""

    observation_space, action_space = spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(2)

    def __init__(self, objectives=False):
        self.objectives = objectives

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        info = (
            {"cost": self.time, "terms": [1.0, -self.time]} if self.time < 3 else {"terms": [0, 9]}
        )
        reward = np.array([1.0, 10.0 * self.time]) if self.objectives else 1.0
        return np.zeros(2, np.float32), reward, self.time == 3, False, info


def steps(world, count):
    keys = jax.random.split(jax.random.key(0), 1)
    state, _ = world.reset(keys)
    found = []
    for _ in range(count):
        state, step = world.step(state, np.zeros((1, 2), np.int32), keys)
        found.append(step)
    world.close()
    return found


@pytest.mark.parametrize("workers", [0, 1])
def test_reported_channels_read_info_and_default_to_zero_with_a_warning(workers, capsys):
    world = envs.make(Costly, (0,), 2, workers=workers, channels="cost:sum:less:0..9,terms:mean")
    assert world.spec.channels == {
        "cost": Channel(better=-1, within=(0.0, 9.0)),
        "terms": Channel(parts=("0", "1"), reduce="mean"),
    }
    found = steps(world, 5)
    assert [step.channels["cost"][0, 1] for step in found] == [1.0, 2.0, 0.0, 0.0, 1.0]
    assert [step.channels["terms"][0, 0, 1] for step in found] == [-1.0, -2.0, 9.0, 0.0, -1.0]
    assert [bool(step.mask[0, 0]) for step in found] == [True, True, True, False, True]
    assert capsys.readouterr().err.count("some steps have no info['cost']") == 1


@pytest.mark.parametrize(("weights", "learned"), [("", 11.0), ("1,0.5", 6.0)])
def test_vector_reward_is_a_reported_channel_and_summed(weights, learned, capsys):
    def factory():
        return Costly(objectives=True)

    world = envs.make(factory, (0,), 2, workers=0, reward_weights=weights)
    assert world.spec.channels == {"objectives": Channel(parts=("0", "1"), better=1)}
    first = steps(world, 1)[0]
    assert first.reward[0, 0] == learned
    np.testing.assert_array_equal(first.channels["objectives"][0, 0], [1.0, 10.0])
    assert "the reward has 2 entries, reported as objectives" in capsys.readouterr().err


def test_reported_channels_are_empty_without_declarations():
    world = envs.make(Costly, (0,), 2, workers=0)
    assert world.spec.channels == {}
    assert steps(world, 1)[0].channels == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"channels": "cost:median"}, "Unknown reduce"),
        ({"channels": "cost:sum:fewer"}, "Write NAME:REDUCE:DIRECTION"),
        ({"channels": "cost:sum:less:5"}, "Write NAME:REDUCE:DIRECTION"),
        ({"channels": "return:sum"}, "every run has a column of this name"),
        ({"reward_weights": "1,x"}, "are not numbers"),
        ({"reward_weights": "1,2"}, "2 numbers, but the reward has 1"),
    ],
)
def test_reported_channels_refuse_invalid_declarations(options, said):
    with pytest.raises(Mistake, match=said) as error:
        envs.make(Costly, (0,), 1, workers=0, **options)
    assert "\n" not in str(error.value)


def test_channel_declarations_are_parsed_from_text():
    assert parse_channels("") == {}
    assert parse_channels("cost, peak:max:more:-1..1") == {
        "cost": Channel(),
        "peak": Channel(reduce="max", better=1, within=(-1.0, 1.0)),
    }


@pytest.mark.skipif(
    envpool_env.unavailable_reason() is not None, reason="EnvPool is not installed here"
)
def test_reported_channels_read_envpool_info():
    name = "envpool:HalfCheetah-v4"
    world = envs.make(
        name, (0,), 2, channels="reward_run:sum:more,reward_ctrl", max_episode_steps=3
    )
    keys = jax.random.split(jax.random.key(0), 1)
    state, _ = world.reset(keys)
    move = jax.jit(world.step)
    for count in range(1, 6):
        state, step = move(state, np.full((1, 2, 6), 0.5, np.float32), keys)
        total = step.channels["reward_run"] + step.channels["reward_ctrl"]
        rewarded = np.where(step.mask, step.reward, 0.0)
        np.testing.assert_allclose(total, rewarded, rtol=1e-5, atol=1e-6)
        assert bool(step.mask.all()) == (count != 4)
    world.close()
    with pytest.raises(Mistake, match=r"no info\['reward_rum'\]; did you mean|reward_run"):
        envs.make(name, (0,), 1, channels="reward_rum")
