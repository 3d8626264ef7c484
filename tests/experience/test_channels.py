"""What a world reports beside the reward: one rule counts it, through every wrapper."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling import random_keys
from sterling.envs.frame_stack import FrameStack
from sterling.envs.traced_world import TracedWorld
from sterling.envs.world_wrappers import ActionRepeat, ClipReward, Flatten, TimeLimit
from sterling.experience.rollouts import episode_totals
from sterling.experience.rollouts.rollout import Rollout
from sterling.problem.channels import Channel, channel_columns, check_channels
from sterling.training.evaluation.evaluate_policy import evaluate
from sterling.types import Mistake

CHANNELS = {
    "spent": Channel(better=-1),
    "speed": Channel(reduce="mean"),
    "place": Channel(reduce="last"),
    "peak": Channel(reduce="max"),
    "aims": Channel(parts=("near", "far"), better=1),
}
REWARDS = (1.0, 5.0, 2.0)  # of the three steps of every episode


class Walk:
    """Three steps, of which every channel reports the reward's negative, or twice of it."""

    obs, action = spaces.Box(0.0, 9.0, (1,), np.float32), spaces.Discrete(2)
    channels = CHANNELS

    def reset(self, key):
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, state, action, key):
        reward, time = jnp.asarray(REWARDS)[state], state + 1
        paid = self.reported(reward)
        return time, time[None].astype(jnp.float32), reward, time >= 3, jnp.zeros((), bool), paid

    def reported(self, reward):
        names = ("spent", "speed", "place", "peak")
        return dict.fromkeys(names, -reward) | {"aims": jnp.stack([reward, 2.0 * reward])}


EXPECTED = {"spent": -8.0, "speed": -8.0 / 3, "place": -2.0, "peak": -1.0,
            "aims.near": 8.0, "aims.far": 16.0, "return": 8.0, "length": 3.0}  # fmt: skip


class Idle:
    """Always action 0."""

    def act(self, obs, keys, explore):
        lead = jax.tree.leaves(obs)[0].shape[:2]
        return jnp.zeros(lead, jnp.int32), {}


def world(task=None, envs=2, **options):
    return TracedWorld(task or Walk(), (0, 1), envs, **options)


def drawn(world, length, actor=None):
    start = random_keys.for_seeds(jnp.arange(2, dtype=jnp.int32), "test", 0)
    actor = actor or Idle()
    return Rollout.create(world, length, start, actor).live(actor, start)


WRAPPERS = {
    "bare": lambda w: w,
    "stack": lambda w: FrameStack(w, 2),
    "clip": ClipReward,
    "flatten": Flatten,
    "limit": lambda w: TimeLimit(w, 50),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_channel_reductions_match_hand_values_and_ignore_masked_rows(name):
    source, record = drawn(WRAPPERS[name](world()), 8)  # two episodes, each with its masked row
    tally = source.tally
    assert tally.episodes.tolist() == [4, 4]
    assert set(tally.totals) == set(EXPECTED)
    for column, value in EXPECTED.items():
        np.testing.assert_allclose(tally.totals[column], 4 * value, rtol=1e-6, err_msg=column)
    np.testing.assert_array_equal(record.mask[0, :, 0], [True] * 3 + [False] + [True] * 3 + [False])
    np.testing.assert_array_equal(record.extras["spent"][0, :, 0], [-1, -5, -2, 0] * 2)
    np.testing.assert_array_equal(record.extras["episode/spent"][0, :, 0], [-1, -6, -8, 0] * 2)
    np.testing.assert_array_equal(record.extras["episode/peak"][0, :, 0], [-1, -1, -1, 0] * 2)
    np.testing.assert_array_equal(record.extras["aims"][1, 1, 1], [5.0, 10.0])


def test_action_repeat_reduces_channels_as_episodes_do():
    source, record = drawn(ActionRepeat(world(), 2), 2)
    np.testing.assert_array_equal(record.extras["spent"][0, :, 0], [-6.0, -2.0])
    np.testing.assert_array_equal(record.extras["speed"][0, :, 0], [-3.0, -2.0])
    np.testing.assert_array_equal(record.extras["place"][0, :, 0], [-5.0, -2.0])
    np.testing.assert_array_equal(record.extras["peak"][0, :, 0], [-1.0, -2.0])
    assert float(source.tally.totals["spent"][0]) == 2 * -8.0


def test_evaluation_reduces_channels_as_rollouts_do():
    found = evaluate(Idle(), world(), jnp.arange(2, dtype=jnp.int32), 3)
    assert set(found) == {*EXPECTED, "ended"}
    for column, value in EXPECTED.items():
        np.testing.assert_allclose(found[column], np.full((2, 3), value), rtol=1e-6, err_msg=column)


def test_non_finite_channel_value_invalidates_the_episode():
    class Broken(Walk):
        def reported(self, reward):
            paid = super().reported(reward)
            return paid | {"spent": jnp.where(reward > 4.0, jnp.nan, paid["spent"])}

    source, record = drawn(world(Broken()), 4)
    np.testing.assert_array_equal(record.mask[0, :, 0], [True, False, False, False])
    assert np.isfinite(np.concatenate([np.ravel(x) for x in record.extras.values()])).all()
    assert source.tally.invalid.tolist() == [2, 2]
    assert source.tally.episodes.tolist() == [0, 0]


def test_rollout_of_an_environment_without_channels_records_no_extras():
    from sterling.envs.probes.probe_worlds import make_probe

    source, record = drawn(world(make_probe("both")), 4)
    assert record.extras == {}
    assert set(source.tally.totals) == {"return", "length"}


def test_rollout_refuses_channels_that_differ_from_the_declaration():
    class Silent(Walk):
        def step(self, *given):
            return super().step(*given)[:5]

    class Other(Walk):
        def reported(self, reward):
            return {"spent": reward}

    class Wide(Walk):
        def reported(self, reward):
            return super().reported(reward) | {"spent": jnp.stack([reward, reward])}

    for task, said in (
        (Silent(), "reported no channels"),
        (Other(), "reported spent, but the task declares"),
        (Wide(), "has shape .*, but its declaration says"),
    ):
        with pytest.raises(Mistake, match=said):
            drawn(world(task), 1)


def test_rollout_refuses_a_channel_named_like_an_actor_extra():
    class Recording(Idle):
        def act(self, obs, keys, explore):
            action, _ = super().act(obs, keys, explore)
            return action, {"spent": action.astype(jnp.float32)}

    with pytest.raises(
        Mistake,
        match="'spent' is both a channel of the environment and an extra of the algorithm; rename",
    ):
        drawn(world(), 1, Recording())


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Channel(reduce="median"), "Unknown reduce.* Use sum, mean, last, max"),
        (lambda: Channel(better=2), "Use -1, 0 or 1"),
        (lambda: Channel(within=(1.0, 0.0)), "with low < high"),
        (lambda: Channel(parts=("a", "a")), "contain a name twice"),
        (lambda: check_channels({"return": Channel()}), "every run has a column of this name"),
        (lambda: check_channels({"a/b": Channel()}), "is not a valid channel name"),
    ],
)
def test_channels_refuse_invalid_declarations(made, said):
    with pytest.raises(Mistake, match=said):
        made()


def test_channel_columns_name_the_parts_of_vectors():
    assert list(channel_columns(CHANNELS)) == [
        "spent",
        "speed",
        "place",
        "peak",
        "aims.near",
        "aims.far",
    ]
    assert channel_columns(CHANNELS)["aims.far"] == dataclasses.replace(CHANNELS["aims"], parts=())


def test_episode_totals_of_no_steps_are_zero():
    totals = episode_totals.empty_totals(CHANNELS, (1, 1))
    found = episode_totals.channel_values(CHANNELS, totals)
    assert float(found["speed"][0, 0]) == 0.0
    assert totals["length"].dtype == jnp.int32
