"""No stored transition joins two episodes, whoever resets the environment and when."""

import functools
import sys

import cloudpickle
import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import Autoreset, TimeLimit
from hypothesis import given, settings
from hypothesis import strategies as st

from sterling.envs.hosted.hosted_env import HostWorld
from sterling.envs.hosted.vector_env import VectorWorld
from sterling.equations.returns import continues
from sterling.experience.rollouts.rollout import Rollout
from sterling.types import Mistake

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@functools.cache
def fixed_keys():
    return jax.random.split(jax.random.key(0), 2)


ENVS = 3


PLAN = [4, 1, 3]  # lengths of the episodes to come; rewritten by every example


class Counter(gymnasium.Env):
    """Observes (episode, step); ends or is cut after the planned steps; the reward is 1."""

    observation_space = spaces.Box(0, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, truncates=False):
        self.truncates, self.episode = truncates, -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        self.length = PLAN[self.episode % len(PLAN)]
        return self._seen(), {}

    def step(self, action):
        self.time += 1
        assert self.time <= self.length, "stepped beyond its end"
        over = self.time == self.length
        return self._seen(), 1.0, over and not self.truncates, over and self.truncates, {}

    def _seen(self):
        return np.array([float(self.episode), float(self.time)])


class Nested(Counter):
    """The same, in a dict."""

    observation_space = spaces.Dict({"a": Counter.observation_space})

    def _seen(self):
        return {"a": super()._seen()}


class Idle:
    """Does nothing, in every env."""

    def act(self, obs, keys, explore):
        return jax.numpy.zeros((2, ENVS), "int32"), {}


def vector(mode, make=Counter, **how):
    def make_vec(count):
        return SyncVectorEnv([lambda: make(**how)] * count, autoreset_mode=mode)

    return VectorWorld(make_vec, (0, 1), ENVS)


def host(wrap, **how):
    return HostWorld(lambda: wrap(Counter(**how)), (0, 1), ENVS, workers=0)


def draws(world, length=7, count=2):
    """``count`` rollouts end to end, as (seed * env, time) rows, and what was tallied."""
    source, parts = Rollout.create(world, length, fixed_keys()), []
    for _ in range(count):
        source, batch = source.live(Idle(), fixed_keys())
        parts.append(jax.tree.map(np.asarray, batch))
    rows = jax.tree.map(lambda *xs: np.concatenate(xs, 1).swapaxes(1, 2), *parts)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows), source.tally


def check(rows, truncates):
    """Every unmasked row is one step within one episode, and ends it where it should."""
    obs, next_obs = (jax.tree.leaves(x)[0] for x in (rows.obs, rows.next_obs))
    mask, last, discount = rows.mask, rows.last, rows.discount
    assert mask.any()
    np.testing.assert_array_equal(next_obs[mask] - obs[mask], [[0.0, 1.0]] * mask.sum())
    np.testing.assert_array_equal(next_obs[:, :-1], obs[:, 1:])
    np.testing.assert_array_equal(discount[last & mask], float(truncates))
    np.testing.assert_array_equal(discount[mask & ~last], 1.0)
    np.testing.assert_array_equal(~mask[:, 1:], last[:, :-1])  # after an end, and only then
    np.testing.assert_array_equal(rows.reward, mask.astype(np.float32))
    for row in range(len(mask)):
        onward = np.asarray(continues(jax.numpy.array(last[row]), jax.numpy.array(mask[row])))
        same = (obs[row, 1:, 0] == obs[row, :-1, 0]) & mask[row, 1:] & mask[row, :-1]
        assert not (onward[:-1] & mask[row, :-1] & ~same).any()  # no trace crosses a reset


MAKE = {
    "plain": lambda: host(lambda env: env),
    "time limit": lambda: host(lambda env: TimeLimit(env, 3)),
    "resets itself": lambda: host(Autoreset),
    "cuts itself": lambda: host(lambda env: env, truncates=True),
    "next step": lambda: vector(AutoresetMode.NEXT_STEP),
    "next step, dict": lambda: vector(AutoresetMode.NEXT_STEP, Nested),
    "same step": lambda: vector(AutoresetMode.SAME_STEP),
    "same step, dict": lambda: vector(AutoresetMode.SAME_STEP, Nested),
    "same step, cut": lambda: vector(AutoresetMode.SAME_STEP, truncates=True),
    "disabled": lambda: vector(AutoresetMode.DISABLED),
}
LOSSY = ["same step", "same step, dict", "same step, cut", "disabled"]
LOSSLESS = [kind for kind in MAKE if kind not in LOSSY]


@functools.cache
def world_of(kind):
    """One world of every kind, so that each is compiled once."""
    return MAKE[kind]()


@pytest.mark.parametrize("kind", LOSSLESS)
@settings(max_examples=5)
@given(plan=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_autoreset_transitions_join_no_episodes_and_lose_no_row(kind, plan):
    PLAN[:] = [99] if kind == "time limit" else plan
    rows, tally = draws(world_of(kind))
    check(rows, truncates=kind in ("time limit", "cuts itself"))
    obs, mask = jax.tree.leaves(rows.obs)[0], rows.mask
    for row in range(len(mask)):
        episode, time = obs[row][mask[row]].astype(int).T
        new = np.flatnonzero(np.diff(episode)) + 1
        np.testing.assert_array_equal(time[new], 0)
        np.testing.assert_array_equal(np.diff(episode)[new - 1], 1)
    assert np.sum(tally.episodes) == np.sum(rows.last & mask)
    np.testing.assert_array_equal(tally.returns, tally.lengths)
    assert not np.sum(tally.invalid)


@pytest.mark.parametrize("kind", LOSSY)
@settings(max_examples=5)
@given(plan=st.lists(st.integers(2, 5), min_size=1, max_size=4))
def test_same_step_autoreset_costs_only_the_first_transition(kind, plan):
    PLAN[:] = plan
    rows, tally = draws(world_of(kind))
    check(rows, truncates=kind == "same step, cut")
    obs = jax.tree.leaves(rows.obs)[0]
    began = obs[:, :1, 0]  # the first episodes lose nothing
    assert (obs[rows.mask & (obs[..., 0] > began)][:, 1] >= 1).all()
    ends = rows.last & rows.mask
    shortened = (ends & (obs[..., 0] > began)).reshape(2, -1).sum(1)
    np.testing.assert_array_equal(tally.returns, np.asarray(tally.lengths) + shortened)


@pytest.mark.parametrize("kind", LOSSY)
def test_autoreset_handles_episodes_of_one_step(kind):
    PLAN[:] = [1, 3]
    rows, _ = draws(world_of(kind))
    obs, next_obs = (jax.tree.leaves(x)[0] for x in (rows.obs, rows.next_obs))
    assert rows.mask.any()
    np.testing.assert_array_equal(next_obs[rows.mask][:, 0], obs[rows.mask][:, 0])
    assert (rows.discount[~rows.mask] == 1.0).all()


def test_vector_env_runs_a_numpy_vectorised_environment():
    world = VectorWorld(
        lambda n: gymnasium.make_vec("CartPole-v1", n, vectorization_mode="vector_entry_point"),
        (0, 1),
        ENVS,
    )
    rows, tally = draws(world, 40, 2)
    assert np.sum(tally.episodes) > 0
    np.testing.assert_array_equal(~rows.mask[:, 1:], rows.last[:, :-1])
    assert (np.abs(rows.obs[:, 1:][~rows.mask[:, :-1]]) <= 0.05).all()  # CartPole's first states


class Ledger(gymnasium.Env):
    """Observes what 32 bits do not hold, beside what they do."""

    wide, narrow = (spaces.Box(0, 2**n, (1,), np.int64) for n in (40, 20))
    observation_space = spaces.Dict({"narrow": narrow, "wide": wide})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"wide": np.array([2**33 + 2**12]), "narrow": np.array([2**17])}, {}

    def step(self, action):
        return self.reset()[0], 0.0, False, False, {}


def test_vector_env_turns_64_bit_integers_into_floats():
    """They would wrap silently: 2**33 would be seen as 0."""
    for world in (
        VectorWorld(lambda n: SyncVectorEnv([Ledger] * n), (0, 1), ENVS),
        HostWorld(Ledger, (0, 1), ENVS, workers=0),
    ):
        rows, _ = draws(world, 3, 1)
        assert (rows.obs["wide"].dtype, rows.obs["narrow"].dtype) == (np.float32, np.int32)
        assert np.unique(rows.obs["wide"]).tolist() == [2**33 + 2**12]
        assert np.unique(rows.obs["narrow"]).tolist() == [2**17]
        assert world.spec.obs["wide"].dtype == np.float32


def test_vector_env_refuses_wrong_copies_and_unknown_autoreset():
    env = SyncVectorEnv([Counter] * 4)
    with pytest.raises(Mistake, match="has 4 copies, but 2 seeds x 3 envs are 6"):
        VectorWorld(lambda count: env, (0, 1), 3)
    env.metadata.pop("autoreset_mode")
    with pytest.raises(Mistake, match="does not say how it resets"):
        VectorWorld(lambda count: env, (0, 1), 2)
