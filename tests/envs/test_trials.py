"""Trials: several episodes of one level as one, their rewards and ends seen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling import envs, random_keys
from sterling.envs.levels import count_levels
from sterling.envs.trials import Trials
from sterling.experience.rollouts.rollout import Rollout
from sterling.problem.channels import Channel, channel_columns
from sterling.types import Mistake


class Rooms:
    """A level is a number; shown are it, a number drawn anew each episode, and the clock."""

    obs = spaces.Box(0.0, 1e6, (3,), np.float32)
    action = spaces.Discrete(2)
    levels = 7

    def level(self, key):
        return jax.random.randint(key, (), 0, 1000, jnp.int32)

    def begin(self, level, key):
        state = jnp.stack([level, jax.random.randint(key, (), 0, 10**6), jnp.int32(0)])
        return state, state.astype(jnp.float32)

    def step(self, state, action, key):
        state = state + jnp.array([0, 0, 1], jnp.int32)
        ended = (state[2] == 3) & (action == 1)
        return state, state.astype(jnp.float32), jnp.float32(state[2]), ended, jnp.zeros((), bool)


def played(world, actions):
    seeds, rows, move = jnp.zeros(1, jnp.int32), [], jax.jit(world.step)
    state, obs = world.reset(random_keys.for_seeds(seeds, "reset", 0))
    for time, action in enumerate(actions):
        given = jnp.full((1, 1), action, jnp.int32)
        state, step = move(state, given, random_keys.for_seeds(seeds, "step", time))
        rows.append(step)
    return obs, jax.tree.map(lambda *x: np.stack([each[0, 0] for each in x]), *rows)


@pytest.mark.parametrize("right", [1, 0])
def test_trial_repeats_one_level_and_the_next_trial_changes_it(right):
    """They last 3 steps where the action is 1 and else are cut after 5."""
    each = 3 if right else 5
    world = envs.make(Trials(Rooms(), 2, limit=5), (0,), 1)
    assert count_levels(world.book) == 7
    first, step = played(world, [right] * (2 * each + 2))
    obs, reward, ended = (step.obs[name] for name in ("obs", "reward", "ended"))
    trial = 2 * each  # steps of a trial
    np.testing.assert_array_equal(np.flatnonzero(step.last), [trial - 1])
    assert step.discount[trial - 1] == 0.0
    assert step.discount[each - 1] == 1.0
    np.testing.assert_array_equal(np.flatnonzero(ended[:, 0]), [each - 1, trial - 1])
    np.testing.assert_array_equal(np.flatnonzero(~step.mask), [trial])
    clock = [*range(1, each), 0] * 2  # an episode's first observation stands where one has ended
    np.testing.assert_array_equal(obs[:trial, 2], clock)
    np.testing.assert_array_equal(reward[:trial, 0], [*range(1, each + 1)] * 2)
    np.testing.assert_array_equal(reward[:trial, 0], step.reward[:trial])
    assert (obs[: trial - 1, 0] == first["obs"][0, 0, 0]).all()
    assert obs[trial, 0] != first["obs"][0, 0, 0]
    assert obs[each, 1] != first["obs"][0, 0, 1]  # an episode's own chance
    assert first["reward"][0, 0, 0] == first["ended"][0, 0, 0] == 0.0
    assert reward[trial, 0] == ended[trial, 0] == 0.0


MIXED = [1] * 3 + [0] * 6  # an episode terminates after 3 steps, and another is cut after 5


@pytest.fixture(scope="module")
def mixed():
    world = envs.make(Trials(Rooms(), 2, limit=5), (0,), 1)
    return world.spec, *played(world, MIXED)


def test_final_observation_and_return_of_each_inner_episode_are_reported(mixed):
    """An episode's rewards are 1, 2, 3, ..."""
    spec, first, step = mixed
    level, number, _ = first["obs"][0, 0]
    expected = np.zeros((9, 3))
    expected[2] = level, number, 3
    expected[7] = level, step.obs["obs"][2, 1], 5  # the number with which the second began
    np.testing.assert_array_equal(step.obs["final_obs"], expected)
    assert (first["final_obs"] == 0).all()
    assert first["terminated"] == 0
    np.testing.assert_array_equal(np.flatnonzero(step.obs["ended"]), [2, 7])
    np.testing.assert_array_equal(np.flatnonzero(step.obs["terminated"]), [2])
    returns = np.zeros((9, 2))
    returns[:3, 0], returns[3:8, 1] = [1, 2, 3], [1, 2, 3, 4, 5]  # in all 6 and 15
    np.testing.assert_array_equal(step.channels["inner_return"], returns)
    assert list(channel_columns(spec.channels)) == ["inner_return.1", "inner_return.2"]


def test_inner_episode_that_ends_in_the_step_of_its_limit_has_terminated():
    world = envs.make(Trials(Rooms(), 2, limit=3), (0,), 1)
    _, step = played(world, [1, 1, 1, 0, 0, 0])
    np.testing.assert_array_equal(step.obs["ended"][:, 0], [0, 0, 1, 0, 0, 1])
    np.testing.assert_array_equal(step.obs["terminated"][:, 0], [0, 0, 1, 0, 0, 0])


def test_trials_without_final_observations_are_otherwise_the_same(mixed):
    _, old = played(envs.make(Trials(Rooms(), 2, 5, final=False), (0,), 1), MIXED)
    step = mixed[2]
    assert set(old.obs) == {"obs", "reward", "ended"}
    assert old.channels == {}
    for name, values in old.obs.items():
        np.testing.assert_array_equal(values, step.obs[name])
    np.testing.assert_array_equal(old.last, step.last)


class Dice(Rooms):
    """Observes numbers other than 0, a mask, and what critics alone get."""

    obs = spaces.Dict(
        {
            "action_mask": spaces.Box(0, 1, (2,), np.int8),
            "die": spaces.Discrete(6, start=1),
            "sizes": spaces.Box(2.0, 3.0, (2,), np.float32),
            "state": spaces.MultiDiscrete([3, 4]),
        }
    )
    unseen = ("state",)


def test_final_observation_of_a_dict_has_its_entries_but_the_mask():
    trials = Trials(Dice(), 2)
    added = {"reward", "ended", "terminated", "final_die", "final_sizes", "final_state"}
    assert set(trials.obs.spaces) == {*Dice.obs.spaces, *added}
    assert trials.unseen == ("state", "final_state")  # critics alone get it of either
    assert trials.obs["final_die"] == spaces.Discrete(7)
    assert trials.obs["final_state"] == Dice.obs["state"]
    assert trials.obs["final_sizes"].contains(np.zeros(2, np.float32))


class Counting:
    """Remembers how many steps it has taken."""

    def memory(self, envs, keys):
        return jnp.zeros((1, envs), jnp.int32)

    def recall(self, past, obs, keys, explore):
        count = past.memory + 1
        return jnp.ones(count.shape, jnp.int32), count, {"count": count}


def test_actor_memory_lasts_for_a_whole_trial():
    world, start = (
        envs.make(Trials(Rooms(), 3), (0,), 1),
        random_keys.for_seeds(jnp.zeros(1, jnp.int32), "a", 0),
    )
    _, rows = Rollout.create(world, 25, start, Counting()).live(Counting(), start)
    assert rows.obs["ended"].sum() > 6
    # nine steps in three episodes, and the row that resets: its action is ignored
    expected = ([*range(1, 11)] * 3)[:25]
    np.testing.assert_array_equal(rows.extras["count"][0, :, 0], expected)


def test_trials_of_native_environments_are_made_by_name():
    world = envs.make("trials:3:maze:3x3", (0, 1), 2, levels=10, purpose="evaluate")
    assert set(world.spec.obs.spaces) == {"obs", "reward", "ended", "terminated", "final_obs"}
    assert world.task.limit == 36
    assert world.limit == 0
    assert world.task.episodes == 3
    inner = envs.make("maze:3x3", (0, 1), 2, levels=10, purpose="evaluate")
    for one, other in zip(*map(jax.tree.leaves, (world.book, inner.book)), strict=True):
        np.testing.assert_array_equal(one, other)
    old = envs.make("trials:2:CartPole-v1", (0,), 1, final=False)
    assert old.task.limit == 500
    assert set(old.spec.obs.spaces) == {"obs", "reward", "ended"}
    with pytest.raises(Mistake, match=r"final=3 is not possible\. Give true or false"):
        envs.make("trials:2:CartPole-v1", (0,), 1, final=3)


def test_trials_pass_channels_on_and_reset_tasks_without_levels():
    world = envs.make("trials:2:hazards:3x4", (0,), 1)
    assert set(world.spec.channels) == {"cost", "inner_return"}
    _, step = played(world, [1] * 40)
    assert step.channels["cost"].sum() > 0
    assert world.book is None
    assert step.obs["ended"].sum() >= 2 * step.last.sum()
    assert step.last.any()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("trials:0:maze:3x3", "Unknown environment"),
        ("trials:maze:3x3", "Unknown environment"),
        ("trials:2:maze:none", "Unknown environment"),
        ("trials:2:trials:2:maze:3x3", "Unknown environment"),
        ("trials:2:envpool:Acrobot-v1", "Unknown environment"),
    ],
)
def test_trials_refuse_unknown_names(name, said):
    with pytest.raises(Mistake, match=said):
        envs.make(name, (0,), 1)


def test_trials_edit_levels_where_the_inner_task_can():
    trials = envs.make("trials:2:maze:3x3", (0,), 1).task
    level, key = trials.level(jax.random.key(0)), jax.random.key(1)
    same = jax.tree.map(jnp.array_equal, trials.edit(level, key), trials.task.edit(level, key))
    assert all(jax.tree.leaves(same))
    assert not hasattr(envs.make("trials:2:hazards:3x4", (0,), 1).task, "edit")


def test_trials_refuse_a_task_that_observes_the_added_names():
    task = Rooms()
    task.obs = spaces.Dict({"reward": spaces.Box(0.0, 1.0, (1,))})
    with pytest.raises(Mistake, match="task already observes 'reward', which a trial adds"):
        Trials(task, 2)


def test_trials_refuse_games_of_two_sides():
    with pytest.raises(Mistake, match="need a task of one side, not a game"):
        envs.make("trials:2:tictactoe:self", (0,), 1)


def test_trials_refuse_a_task_that_reports_inner_returns():
    task = Rooms()
    task.channels = {"inner_return": Channel()}
    with pytest.raises(Mistake, match=r"already reports 'inner_return', as a trial does\. Rename"):
        Trials(task, 2)
