"""BRO: who acts, how far the explorer goes, when resets come and what they leave."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_key
from gymnasium import spaces

from sterling.algorithms.continuous import bro
from sterling.equations.updates_of_steps import updates_before
from sterling.training.fields.config_fields import make_config
from sterling.training.warm_start.learned_parts import learned_parts
from sterling.types import Mistake, Record, Spec, Transitions

OBS, BOX = spaces.Box(-np.inf, np.inf, (3,), np.float32), spaces.Box(-1.0, 1.0, (2,), np.float32)
SPEC, ROWS = Spec(OBS, BOX, 4, 100), 32
SMALL = {"width": 8, "critic_width": 8, "critic_blocks": 1, "quantiles": 4}
KEY = constant_key(1)
learn, act = jax.jit(bro.learn), jax.jit(bro.act, static_argnames="explore")


def fresh(**fields):
    """A small agent; of 4 envs and 8 steps of warm-up, step 21 is one of the fourth iteration."""
    config = bro.Config(**SMALL, resets=(5, 21), warmup=8, learn=2, **fields)
    return jax.jit(lambda key: bro.init(key, SPEC, config))(jax.random.key(0))


def batch():
    """Each action ends its episode."""
    rng = np.random.default_rng(0)
    obs, action, ones = rng.normal(size=(2, ROWS, 3)), rng.uniform(-1, 1, (ROWS, 2)), np.ones(ROWS)
    parts = obs[0], action, -(action[:, 1] ** 2), 0.0 * ones, obs[1]
    rows = [jnp.asarray(x, jnp.float32) for x in parts]
    return Record(*rows, jnp.zeros(ROWS, bool), jnp.ones(ROWS, bool))


@pytest.mark.slow
def test_the_explorer_acts_and_the_actors_mode_is_evaluated():
    state, obs = fresh(), jnp.zeros((5_000, 3))
    far = eqx.tree_at(lambda s: s.nets.explorer.layers[-1].weight, state, jnp.ones((8, 2)))
    pi = far.nets.actor(obs, obs).normal
    shift = far.nets.explorer(jnp.concatenate([obs, pi.mean], -1))
    raw = np.arctanh(np.asarray(act(far, obs, KEY, True)[0], np.float64))
    std = np.exp(pi.log_std[0])
    np.testing.assert_allclose(raw.std(0), 0.75 * std, rtol=0.05)
    np.testing.assert_allclose(raw.mean(0), (pi.mean + shift)[0], atol=0.05 * std.max())
    np.testing.assert_array_equal(act(far, obs, KEY, False)[0], jnp.tanh(pi.mean))


@pytest.mark.slow
@pytest.mark.parametrize(("target", "rises"), [(0.0, False), (1e6, True)])
def test_optimism_rises_and_the_kls_weight_falls_while_the_explorer_is_near(target, rises):
    state = fresh(kl_target=target, dual_lr=1e-2)
    learned, signals = learn(state, batch(), KEY)
    assert 0.0 < float(signals.metrics["explorer/kl"]) < 1e6
    assert (learned.raw_optimism > state.raw_optimism) == rises
    assert (learned.raw_kl_weight < state.raw_kl_weight) == rises


@pytest.mark.slow
def test_a_reset_leaves_nothing_but_the_count_of_updates():
    state = fresh()
    assert state.due == (6,)
    first = dataclasses.replace(state, updates=jnp.int32(6))
    wanted, _ = learn(first, batch(), KEY)
    for _ in range(7):
        state, _ = learn(state, batch(), KEY)
    assert eqx.tree_equal(state, wanted)
    assert not eqx.tree_equal(state.nets, state.initial)  # and it learns from there


def test_resets_come_before_the_first_update_after_their_step():
    needs = Transitions(8, collect=2, updates=3, warmup=10)
    found = [updates_before(step, needs, envs=4) for step in (0, 12, 20, 21, 28, 29, 5_012)]
    assert found == [0, 0, 0, 3, 3, 6, 3 * 624]
    whole = jax.eval_shape(lambda key: bro.init(key, Spec(OBS, BOX), bro.Config()), KEY)
    assert whole.due[:2] == (125_000, 475_000)  # steps after the warm-up's 2,500, 10 updates each


def test_steps_are_one_whole_number_or_several():
    assert make_config(bro, {"resets": [3, 9]}, "bro").resets == (3, 9)
    assert make_config(bro, {"resets": 0}, "bro").resets == 0
    with pytest.raises(Mistake, match="resets must be a whole number of at least 0, or a list"):
        make_config(bro, {"resets": (3, -1)}, "bro")


def test_initial_weights_are_no_learned_part():
    """So a warm start does not take them, and upkeep of networks leaves them alone."""
    state = jax.tree.map(lambda x: x[None], eqx.filter(fresh(), eqx.is_array))
    names = [part.name for part in learned_parts(state)]
    assert not [name for name in names if "initial" in name]
    assert {"policy", "explorer", "critics", "target", "log_alpha"} <= set(names), names
