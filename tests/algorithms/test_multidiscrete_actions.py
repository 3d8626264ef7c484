"""Q-learning and soft actor-critic choose several things at once (MultiDiscrete)."""

import dataclasses
import itertools
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling.algorithms.online import dqn, sac
from sterling.algorithms.q_learning import pqn
from sterling.algorithms.streaming import stream_q
from sterling.nets.action_heads import Actions
from sterling.nets.obs_encoder import action_mask
from sterling.types import Record, Spec

SIZES = (3, 2)
FIELDS = {"width": 32, "lr": 3e-3, "batch": 64, "warmup": 200}


class Match:
    """Each of two choices is worth 1/2 if it is the one that is seen."""

    obs, action = spaces.Box(0.0, 1.0, (5,), np.float32), spaces.MultiDiscrete(SIZES)
    channels: ClassVar = {}

    def reset(self, key):
        wanted = jnp.stack([jax.random.randint(jax.random.fold_in(key, at), (), 0, n)
                            for at, n in enumerate(SIZES)])  # fmt: skip
        return wanted, self._seen(wanted)

    def _seen(self, wanted):
        return jnp.concatenate([jax.nn.one_hot(x, n) for x, n in zip(wanted, SIZES, strict=True)])

    def step(self, state, action, key):
        reward = 0.5 * jnp.sum(action == state).astype(jnp.float32)
        over = jnp.ones((), bool)
        return state, self._seen(state), reward, over, ~over


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_multidiscrete_actions_are_learned_on_a_probe_environment(name):
    own = {"target_period": 25, "exploration_fraction": 0.5, "collect": 1, "huber": 10.0}
    more = own if name == "dqn" else {}
    run = sterling.train(
        name, Match, steps=3_000, envs=8, seeds=2, preset=False, evaluate_episodes=50,
        **FIELDS, **more,
    )  # fmt: skip
    assert min(run.result["final"]["return"]["per_seed"]) == 1.0
    value = run.agent.algorithm.value
    obs = jnp.asarray([[0.0, 1.0, 0.0, 1.0, 0.0]])
    if name == "dqn":
        found = jax.vmap(lambda state: value(state, obs))(run.agent.state)
        np.testing.assert_allclose(found, 1.0, atol=0.1)


def masked_batch(rows: int = 6):
    """A batch in which the third entry of the first choice is forbidden next."""
    rng = np.random.default_rng(0)
    mask = np.tile(np.array([1, 1, 0, 1, 1], np.int8), (rows, 1))
    obs = {"action_mask": jnp.asarray(mask)} | {"x": jnp.asarray(rng.normal(size=(rows, 4)), "f4")}
    action = np.stack([rng.integers(0, 2, rows), rng.integers(0, 2, rows)], 1).astype(np.int32)
    return Record(
        obs, jnp.asarray(action), jnp.asarray(rng.normal(size=rows), "f4"),
        jnp.full(rows, 0.5), obs, jnp.zeros(rows, bool), jnp.ones(rows, bool), {},
    )  # fmt: skip


def spec():
    parts = {"action_mask": spaces.MultiBinary(5), "x": spaces.Box(-9.0, 9.0, (4,), np.float32)}
    return Spec(spaces.Dict(parts), spaces.MultiDiscrete(SIZES))


@pytest.mark.parametrize("double", [False, True])
def test_dqn_multidiscrete_loss_equals_a_table_of_joint_actions(double):
    config = dqn.Config(width=8, double=double, dueling=True, huber=float("inf"))
    state = dqn.init(jax.random.key(0), spec(), config)
    other = dqn.init(jax.random.key(1), spec(), config)
    batch = masked_batch()
    total, (_, error) = dqn.loss(state.net, other.net, batch, config)
    now, target = (np.asarray(net(batch.obs), np.float64) for net in (state.net, other.net))
    expected = []
    for row in range(6):
        allowed = list(itertools.product((0, 1), (0, 1)))
        worth = [(target[row, a] + target[row, 3 + b]) / 2 for a, b in allowed]
        online = [(now[row, a] + now[row, 3 + b]) / 2 for a, b in allowed]
        best = worth[int(np.argmax(online))] if double else max(worth)
        a, b = np.asarray(batch.action[row])
        q = (now[row, a] + now[row, 3 + b]) / 2
        expected.append(float(batch.reward[row]) + config.gamma * 0.5 * best - q)
    np.testing.assert_allclose(error, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(total, 0.5 * np.mean(np.square(expected)), rtol=1e-4)


def test_multidiscrete_masked_actions_are_never_taken():
    batch, every = masked_batch(200), []
    for algorithm, fields in (
        (dqn, {"exploration_final": 1.0}),
        (sac, {}),
        (pqn, {"minibatch": 8}),
    ):
        state = algorithm.init(jax.random.key(0), spec(), algorithm.Config(width=8, **fields))
        action, _ = algorithm.act(state, batch.obs, jax.random.key(3), True)
        assert action.shape == (200, 2)
        every.append(np.asarray(action))
        assert not (every[-1][:, 0] == 2).any()
        log_prob = algorithm.log_prob(state, batch.obs, action)
        assert log_prob.shape == (200,)
    for of_chance in (every[0], every[2]):
        assert {tuple(x) for x in of_chance} == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_sac_multidiscrete_target_entropy_counts_allowed_choices():
    state = sac.init(jax.random.key(0), spec(), sac.Config(width=8))
    found = sac.target_entropy(state.actor.actions, None, masked_batch().obs, share=0.98)
    np.testing.assert_allclose(found, 0.98 * (np.log(2) + np.log(2)), rtol=1e-6)
    free = {"x": masked_batch().obs["x"]}
    found = sac.target_entropy(state.actor.actions, None, free, share=0.98)
    np.testing.assert_allclose(found, 0.98 * (np.log(3) + np.log(2)), rtol=1e-6)


def with_mask(mask):
    """``masked_batch`` whose masks are all this one, in both observations."""
    batch = masked_batch()
    obs = {**batch.obs, "action_mask": jnp.tile(jnp.asarray(mask, jnp.int8), (6, 1))}
    return dataclasses.replace(batch, obs=obs, next_obs=obs)


# the second choice has no option, as at an episode's end; all of its options count as allowed then
EMPTY, FILLED = [1, 1, 0, 0, 0], [1, 1, 0, 1, 1]


def dqn_targets(batch, double):
    config = dqn.Config(width=8, double=double, huber=float("inf"))
    nets = [dqn.init(jax.random.key(seed), spec(), config).net for seed in (0, 1)]
    return dqn.loss(*nets, batch, config)[1][1]


def pqn_targets(batch):
    state = pqn.init(jax.random.key(0), spec(), pqn.Config(width=8, minibatch=6))
    rollout = jax.tree.map(lambda x: x[:, None], batch)
    return pqn.rollout_rows(state, rollout)[0]["target"]


def stream_q_values(batch):
    state = stream_q.init(jax.random.key(0), spec(), stream_q.Config(width=8))
    return stream_q.value(state, batch.obs)


def sac_values(batch):
    state = sac.init(jax.random.key(0), spec(), sac.Config(width=8))
    goal = sac.target_entropy(state.actor.actions, None, batch.obs, share=0.98)
    return jnp.concatenate([sac.value(state, batch.obs), goal])


@pytest.mark.parametrize(
    "numbers",
    [
        partial(dqn_targets, double=False),
        partial(dqn_targets, double=True),
        pqn_targets,
        stream_q_values,
        sac_values,
    ],
)
def test_choice_without_an_allowed_option_counts_as_all_allowed_in_targets(numbers):
    found, wanted = (np.asarray(numbers(with_mask(mask))) for mask in (EMPTY, FILLED))
    np.testing.assert_array_equal(found, wanted)
    assert np.abs(found).max() < 100.0


def test_action_mask_fills_each_empty_choice_and_no_other():
    rows = jnp.asarray([[0, 1, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 1, 1, 0]])
    wanted = [[0, 1, 0, 1, 1], [1, 1, 1, 0, 1], [1, 1, 1, 1, 1], [1, 0, 1, 1, 0]]
    found = action_mask({"action_mask": rows}, SIZES)
    np.testing.assert_array_equal(found, np.array(wanted, bool))
    np.testing.assert_array_equal(  # of one choice alone
        action_mask({"action_mask": rows}, (5,)), np.array([*rows[:2], [1] * 5, rows[3]], bool)
    )


def test_policy_of_choices_and_numbers_obeys_the_action_mask():
    actions = Actions("hybrid", SIZES, 1)
    mask = jnp.asarray([[False, True, False, True, False]])
    pi = actions.distribution(jnp.zeros((1, 6)), mask)
    drawn = jax.vmap(pi.sample)(jax.random.split(jax.random.key(0), 50))
    np.testing.assert_array_equal(drawn[:, 0, :2], np.tile([1, 0], (50, 1)))
