"""Bonuses for what is new: their equations, what they learn, and what reaches a learner."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling import envs, random_keys
from sterling.experience.exploration import (
    forward_curiosity,
    hash_counts,
    model_disagreement,
    random_network,
)
from sterling.experience.exploration.exploration_bonus import GAMMA
from sterling.experience.rollouts.rollout import Rollout
from sterling.training.assembly.build_sources import LAYERS
from sterling.types import Mistake, Record

BONUSES = {
    "rnd": random_network.RandomNetwork,
    "icm": forward_curiosity.ForwardCuriosity,
    "disagreement": model_disagreement.ModelDisagreement,
    "counts": hash_counts.HashCounts,
}
ROWS = 64


@functools.cache
def fresh(name):
    """A bonus of the corridor that has seen nothing."""
    spec = envs.make("corridor:12", (0,), 1).spec
    return eqx.filter_jit(lambda key: BONUSES[name].create(key, spec))(jax.random.key(0))


def rows_of(name, cells, mask=None):
    """Rows of a corridor of 12 cells whose next observations are ``cells``."""
    cells = jnp.asarray(cells)
    hot = jax.nn.one_hot(cells, 12)
    zeros = jnp.zeros(len(cells))
    mask = jnp.ones(len(cells), bool) if mask is None else mask
    before = jax.nn.one_hot(jnp.maximum(cells - 1, 0), 12)
    action = (cells % 2).astype(jnp.int32)
    record = Record(before, action, zeros, zeros + 1.0, hot, zeros > 0, mask)
    return fresh(name), record


explore = eqx.filter_jit(lambda bonus, rows, key: bonus.explore(rows, key))


def given(name, bonus, cells):
    return np.asarray(explore(bonus, rows_of(name, cells)[1], jax.random.key(1))[1])


@pytest.mark.parametrize("name", BONUSES)
def test_exploration_bonus_is_smaller_for_visited_than_for_new_states(name):
    bonus, rows = rows_of(name, np.arange(ROWS) % 4)
    learned = bonus
    for key in jax.random.split(jax.random.key(2), 150):
        learned, _ = explore(learned, rows, key)
    known, new = (np.mean(given(name, learned, cells)) for cells in ([0, 1, 2, 3], [8, 9, 10, 11]))
    assert known < 0.3 * new
    assert known < 0.3 * np.mean(given(name, bonus, [0, 1, 2, 3]))


@pytest.mark.parametrize("name", BONUSES)
def test_exploration_bonus_ignores_masked_rows(name):
    mask = jnp.arange(ROWS) < ROWS // 2
    cells = np.where(np.arange(ROWS) < ROWS // 2, np.arange(ROWS) % 4, 7)
    other = np.where(np.arange(ROWS) < ROWS // 2, np.arange(ROWS) % 4, 9)
    learned = []
    for each in (cells, other):
        bonus, rows = rows_of(name, each, mask)
        learned.append(explore(bonus, rows, jax.random.key(3))[0])
    for x, y in zip(*map(jax.tree.leaves, learned), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7)


def test_hash_count_bonus_is_one_over_the_root_of_visits():
    bonus, _ = rows_of("counts", [0])
    for visits in (1, 4):  # 1, then 3 more and this one
        amount = given("counts", bonus, [5] * visits)
        np.testing.assert_allclose(amount, visits**-0.5, rtol=1e-6)


def test_disagreement_bonus_is_the_variance_of_the_models():
    bonus, rows = rows_of("disagreement", [3, 5])
    seen = bonus.normaliser.update(rows.obs, rows.mask).batch(rows)
    x = jnp.concatenate([bonus.features(seen.obs), jax.nn.one_hot(rows.action, 2)], -1)
    each = [
        np.asarray(jax.tree.map(lambda leaf, k=k: leaf[k], bonus.models)(x))
        for k in range(model_disagreement.MODELS)
    ]
    expected = np.var(np.stack(each), 0).mean(-1)
    np.testing.assert_allclose(given("disagreement", bonus, [3, 5]), expected, rtol=1e-5)


def test_curiosity_features_are_trained_by_the_inverse_model_alone():
    bonus, rows = rows_of("icm", [3, 5])
    gradient = eqx.filter_jit(eqx.filter_grad(lambda nets, of: jnp.sum(of(nets, rows))))
    grads = gradient(bonus.nets, type(bonus.nets).surprise)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(grads.features))
    assert any(np.any(leaf) for leaf in jax.tree.leaves(grads.forward))
    grads = gradient(bonus.nets, type(bonus.nets).inverse_loss)
    assert any(np.any(leaf) for leaf in jax.tree.leaves(grads.features))
    logits = bonus.nets.inverse(
        jnp.concatenate([bonus.nets.features(x) for x in (rows.obs, rows.next_obs)], -1)
    )
    expected = -jax.nn.log_softmax(logits)[np.arange(2), np.asarray(rows.action)]
    np.testing.assert_allclose(bonus.nets.inverse_loss(rows), expected, rtol=1e-5)


@functools.cache
def fixed_keys():
    return random_keys.for_seeds(jnp.asarray((0, 1), jnp.int32), "test", 0)


class Chance(eqx.Module):
    """A random policy for two choices."""

    def act(self, obs, keys, explore):
        return jax.vmap(lambda key: jax.random.randint(key, (3,), 0, 2, jnp.int32))(keys), {}


def with_bonus(word, environment="corridor:6", length=40):
    """A rollout, and the same with a bonus."""
    plain = Rollout.create(envs.make(environment, (0, 1), 3), length, fixed_keys())
    layer = LAYERS[word]
    return plain, layer.rollouts(plain, layer.Config(), fixed_keys(), Chance())


def collect(*how):
    """The source with a bonus after it acted, its rows, and those without a bonus."""
    plain, source = with_bonus(*how)
    assert source.traced == plain.traced
    if not plain.traced:
        return *source.live(Chance(), fixed_keys()), None
    live = eqx.filter_jit(lambda source: source.live(Chance(), fixed_keys()))
    return *live(source), live(plain)[1]


@pytest.mark.parametrize("word", BONUSES)
def test_exploration_bonus_is_added_to_rewards_but_not_to_returns(word):
    after, rows, plain = collect(word)
    more = np.asarray(rows.reward - plain.reward)
    mask = np.asarray(rows.mask)
    assert (more[mask] > 0.0).all()
    assert not more[~mask].any()
    assert not np.isnan(more).any()
    np.testing.assert_array_equal(rows.obs, plain.obs)
    tally = after.tally
    np.testing.assert_allclose(tally.totals["bonus"], more.sum((1, 2)), rtol=1e-4)
    np.testing.assert_array_equal(
        tally.returns, np.where(plain.last, plain.reward, 0.0).sum((1, 2))
    )
    assert not np.any(after.reset_statistics().tally.totals["bonus"])


@pytest.mark.slow
def test_exploration_bonus_is_normalised_by_its_discounted_sum():
    _, rows, plain = collect("icm")
    start, own = with_bonus("icm")[1].bonus, random_keys.fold_each(fixed_keys(), "bonus")
    for seed in range(2):
        flat = jax.tree.map(lambda x, seed=seed: x[seed].reshape(-1, *x.shape[3:]), plain)
        bonus = jax.tree.map(lambda x, seed=seed: x[seed], start)
        amount = np.asarray(bonus.explore(flat, own[seed])[1]).reshape(40, 3)
        mask, last = np.asarray(rows.mask[seed]), np.asarray(rows.last[seed])
        sums, running = [], np.zeros(3)
        for time in range(40):
            running = np.where(mask[time], GAMMA * running + amount[time], 0.0)
            sums.extend(running[mask[time]])
            running = np.where(last[time], 0.0, running)
        expected = np.where(mask, 0.5 * np.clip(amount / np.std(sums), -10.0, 10.0), 0.0)
        found = np.asarray(rows.reward - plain.reward)[seed]
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["gymnasium:CartPole-v1", "envpool:CartPole-v1"])
def test_exploration_bonus_works_with_host_environments(environment):
    after, rows, _ = collect("rnd", environment, 12)
    more = np.asarray(rows.reward)[np.asarray(rows.mask)] - 1.0  # a pole that stands pays 1
    assert (more > 0.0).all()
    after.close()


@pytest.mark.parametrize("words", ["rnd:0", "counts:-1", "icm:x", "disagreement:1,2"])
def test_exploration_bonus_refuses_a_weight_of_zero_or_less(words):
    with pytest.raises(Mistake, match=r"; write .* or .*:weight="):
        sterling.train("ppo", "corridor:6", steps=4_096, sources=words)


@pytest.mark.slow
@pytest.mark.parametrize("word", BONUSES)
def test_ppo_with_exploration_bonus_crosses_a_long_corridor(word):
    how = {"steps": 300_000, "seeds": 3, "preset": False, "evaluate_episodes": 10, "quiet": True}
    how |= {"envs": 8, "length": 64, "minibatch": 128, "epochs": 4, "entropy_coef": 0.01}
    run = sterling.train("ppo", "corridor:30", sources=word, **how)
    assert sum(run.result["final"]["return"]["per_seed"]) >= 2.0
