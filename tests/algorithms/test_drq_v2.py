"""DrQ-v2 on pictures: what the shifts and the encoder do. Its equations have an oracle
(tests/contract/oracles/pictures/drq_v2.py), on vectors."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_key
from gymnasium import spaces

import sterling
from sterling import random_keys
from sterling.algorithms.pictures import drq_v2
from sterling.experience.replay.ring_buffer import Ring
from sterling.types import Mistake, Record, Spec

ROWS, SIDE = 6, 17
KEY = constant_key(1)
BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
PICTURE = spaces.Box(0, 255, (2, SIDE, SIDE), np.uint8)
learn = jax.jit(drq_v2.learn)


def make(obs=PICTURE, encoder=None, **fields):
    config = drq_v2.Config(**{"width": 8, "features": 4, "lr": 0.01, **fields})
    spec = Spec(obs, BOX, iterations=100, encoder=encoder)
    return jax.jit(lambda key: drq_v2.init(key, spec, config))(jax.random.key(0))


def batch_of(obs=PICTURE, **changes):
    rng = np.random.default_rng(0)
    seen = [jnp.asarray(rng.integers(0, 256, (ROWS, *obs.shape)), jnp.uint8) for _ in range(2)]
    if obs.dtype != np.uint8:
        seen = [x.astype(jnp.float32) for x in seen]
    batch = Record(
        obs=seen[0],
        action=jnp.asarray(np.tanh(rng.normal(size=(ROWS, 2))), jnp.float32),
        reward=jnp.asarray(rng.normal(size=ROWS), jnp.float32),
        discount=jnp.ones(ROWS),
        next_obs=seen[1],
        last=jnp.zeros(ROWS, bool),
        mask=jnp.ones(ROWS, bool),
    )
    return dataclasses.replace(batch, **changes)


def equal(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


@pytest.fixture(scope="module", name="state")
def _state():
    return make()


@pytest.mark.slow
def test_drq_v2_update_trains_on_shifted_pictures(state):
    """Shifting beforehand with the update's key, and not in it, is the same; both ends shift."""
    batch = batch_of()
    shifted = state.augment(batch, random_keys.fold(KEY, "shift"))
    assert shifted.obs.dtype == jnp.uint8
    assert not np.array_equal(shifted.obs, batch.obs)
    assert not np.array_equal(shifted.next_obs, batch.next_obs)
    plain = dataclasses.replace(state, config=make(shift=0).config)
    errors, same, others = (
        learn(start, rows, KEY)[1].samples["td_error"]
        for start, rows in ((state, batch), (plain, shifted), (plain, batch))
    )
    np.testing.assert_allclose(errors, same, rtol=1e-4)
    assert not np.allclose(errors, others, rtol=1e-2)


def test_drq_v2_encoder_is_trained_by_the_critics_alone(state):
    """Without a next value the critics' loss does not depend on the actor, nor does the encoder."""
    batch = batch_of(discount=jnp.zeros(ROWS))
    after = learn(state, batch, KEY)[0]
    assert not equal(after.nets.encoder, state.nets.encoder)
    other = eqx.tree_at(
        lambda x: x.nets.actor, state, jax.tree.map(lambda x: x + 0.1, state.nets.actor)
    )
    assert equal(learn(other, batch, KEY)[0].nets.encoder, after.nets.encoder)


def test_drq_v2_target_networks_hold_critics_without_the_encoder(state):
    """Targets follow the critics, trunk included; they read features of the encoder as it is."""
    after = learn(state, batch_of(), KEY)[0]
    wanted = jax.tree.map(lambda x, y: 0.99 * x + 0.01 * y, state.target, after.nets.critics)
    for x, y in zip(jax.tree.leaves(after.target), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)
    assert not hasattr(state.target, "encoder")
    target = jax.jit(drq_v2.target)
    dark = eqx.tree_at(
        lambda x: x.nets.encoder, state, jax.tree.map(jnp.zeros_like, state.nets.encoder)
    )
    assert not np.allclose(target(dark, batch_of(), KEY), target(state, batch_of(), KEY))


def test_drq_v2_encoder_has_the_size_of_the_paper():
    """84 x 84 x 9 give 39,200 features (the authors' code); bytes become -0.5 to 0.5."""
    config = drq_v2.Config()
    spec = Spec(spaces.Box(0, 255, (9, 84, 84), np.uint8), BOX)
    made = jax.eval_shape(lambda key: drq_v2.init(key, spec, config), jax.random.key(0))
    assert made.nets.encoder.size == 39_200
    shapes = [layer.weight.shape for layer in made.nets.encoder.parts[0].layers]
    assert shapes == [(3, 3, 9, 32), *[(3, 3, 32, 32)] * 3]
    assert made.nets.actor.trunk.layer.layers[0].weight.shape == (39_200, 50)
    assert made.nets.encoder.parts[0].middle == 0.5


def test_drq_v2_encoder_choice_for_small_pictures_and_by_name(state):
    assert state.nets.encoder.chosen == "drq"
    small = make(spaces.Box(0, 255, (2, 14, 14), np.uint8))
    assert small.nets.encoder.chosen == ""
    assert make(encoder="grid").nets.encoder.chosen == "grid"
    with pytest.raises(Mistake, match="encoder drq needs pictures with sides of 15 or more"):
        make(spaces.Box(0, 255, (2, 14, 14), np.uint8), encoder="drq")


def test_drq_v2_does_not_shift_vector_observations():
    vector = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    batch = batch_of(vector)
    shifted, plain = (learn(make(vector, shift=shift), batch, KEY)[0] for shift in (4, 0))
    assert equal(shifted.nets, plain.nets)


def test_drq_v2_exploration_noise_falls_to_its_final_value(state):
    """T is 0.32 of 100 planned updates."""
    for updates, wanted in ((0, 1.0), (16, 0.55), (32, 0.1), (99, 0.1)):
        now = eqx.tree_at(lambda x: x.updates, state, jnp.asarray(updates, jnp.int32))
        np.testing.assert_allclose(drq_v2.noise_scale(now), wanted, rtol=1e-5)


def test_drq_v2_actions_are_noisy_only_while_exploring(state):
    obs = batch_of().obs
    still = drq_v2.act(state, obs, KEY, False)[0]
    moved = drq_v2.act(state, obs, KEY, True)[0]
    noise = jax.random.normal(KEY, still.shape)
    np.testing.assert_allclose(moved, jnp.clip(still + noise, -1.0, 1.0), rtol=1e-5)


def test_drq_v2_refuses_discrete_actions():
    with pytest.raises(Mistake, match="drq-v2 does not support Discrete"):
        drq_v2.init(KEY, Spec(PICTURE, spaces.Discrete(3)), drq_v2.Config())


class Still:
    """A Task of grey pictures that show the time."""

    obs = spaces.Box(0, 255, (16, 16), np.uint8)

    def __init__(self, choices=0):
        self.action = spaces.Discrete(choices) if choices else BOX

    def reset(self, key):
        return jnp.zeros((), jnp.int32), jnp.zeros((16, 16), jnp.uint8)

    def step(self, state, action, key):
        time = state + 1
        picture = jnp.broadcast_to(time, (16, 16)).astype(jnp.uint8)
        return time, picture, jnp.ones(()), time >= 9, jnp.zeros((), bool)


SMALL = {"batch": 4, "warmup": 16, "capacity": 64, "width": 8, "evaluate_episodes": 0}


def run_on(task, name, **fields):
    return sterling.train(
        name, lambda: task, steps=48, seeds=1, envs=1, preset=False, **{**SMALL, **fields}
    )


def test_replay_buffer_stores_every_frame_of_a_frame_stack_once():
    """Three frames of three channels, in either order: the replay buffer holds the newest."""
    for shape, stored in (((9, 84, 84), (3, 84, 84)), ((3, 84, 84, 3), (1, 84, 84, 3))):
        ring = jax.eval_shape(
            lambda obs: Ring.create(20, obs, jnp.zeros((1, 1, 2)), 3),
            jax.ShapeDtypeStruct((1, 1, *shape), jnp.uint8),
        )
        assert ring.wide[0].shape == (1, 20, 1, *stored)
        assert ring.wide[0].dtype == jnp.uint8


@pytest.mark.slow
def test_drq_v2_trains_on_frame_stacks_with_cutout_augmentation():
    run = run_on(Still(), "drq-v2", env_options={"stack": 3}, features=4, augment="cutout:2,5")
    assert not run.result["failed_seeds"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task", "augment"),
    [("dqn", Still(3), "shift:2"), ("sac", Still(), "crop:4"), ("sac", Still(3), "translate:3")],
)
def test_dqn_and_sac_train_on_augmented_frame_stacks(name, task, augment):
    run = run_on(task, name, augment=augment, env_options={"stack": 2})
    assert not run.result["failed_seeds"]
