"""Sequences in observations: padded, masked, and read by attention."""

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling import envs, random_keys
from sterling.envs.padding.padded_observations import PaddedObservations
from sterling.nets.obs_encoder import Encoder
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Mistake


class Growing(gymnasium.Env):
    """Observes one item more after every step, from none."""

    observation_space = spaces.Sequence(spaces.Box(-1.0, 1.0, (2,), np.float32))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.items = []
        return (), {}

    def step(self, action):
        self.items.append(np.full(2, 0.5, np.float32))
        return tuple(self.items), 0.0, False, False, {}


def padded(items, most):
    rows = np.full((1, most, 2), 7.0, np.float32)  # what padding holds must not matter
    rows[0, : len(items)] = items
    return {"padded_count": jnp.asarray([len(items)]), "padded_items": jnp.asarray(rows)}


def encoder(most):
    return Encoder.create(jax.random.key(0), PaddedObservations(Growing(), most).observation_space)


features_of = eqx.filter_jit(lambda encoder, obs: encoder(obs))


@pytest.mark.parametrize("length", [1, 3])
def test_sequence_attention_ignores_padding_but_not_order(length):
    items = np.random.default_rng(0).normal(size=(length, 2)).astype(np.float32)
    short, long = (features_of(encoder(most), padded(items, most)) for most in (3, 8))
    np.testing.assert_allclose(short, long, rtol=1e-5, atol=1e-6)
    if length > 1:
        assert np.abs(short - features_of(encoder(3), padded(items[::-1], 3))).max() > 1e-3


def test_sequence_attention_of_an_empty_sequence_has_finite_gradients():
    def loss(made):
        return (made(padded(np.zeros((0, 2)), 3)) ** 2).sum()

    found = features_of(encoder(3), padded(np.zeros((0, 2)), 3))
    np.testing.assert_array_equal(found, np.zeros((1, 128)))
    gradients = jax.tree.leaves(eqx.filter_jit(eqx.filter_grad(loss))(encoder(3)))
    assert all(np.isfinite(each).all() for each in gradients)


def test_obs_normaliser_skips_sequence_items():
    space = PaddedObservations(Growing(), 3).observation_space
    assert not jax.tree.leaves(ObsNormaliser.create(space))


def test_padded_sequence_env_pads_and_never_truncates():
    world = envs.make(Growing, (0,), 1, workers=0, max_items=2, max_failures=9)
    keys = random_keys.for_seeds(jnp.asarray((0,)), "reset", 0)
    _, obs = world.reset(keys)
    assert obs["padded_count"].tolist() == [[0]]
    for count in (1, 2):
        _, step = world.step(None, np.zeros((1, 1), np.int32), keys)
        assert step.obs["padded_count"].tolist() == [[count]]
    np.testing.assert_array_equal(step.obs["padded_items"], np.full((1, 1, 2, 2), 0.5))
    world.step(None, np.zeros((1, 1), np.int32), keys)
    assert "holds 3 items, more than max_items=2" in world.failures[0][1]
    world.close()


def test_policy_accepts_the_environments_own_sequence_observations():
    run = sterling.train(
        "ppo", Growing, steps=16, envs=2, length=4, minibatch=8, epochs=1, width=4, workers=0,
        max_items=2, max_failures=99, evaluate_episodes=0, preset=False,
    )  # fmt: skip
    item = np.full(2, 0.5, np.float32)
    padded = {"padded_count": np.int64(1), "padded_items": np.stack([item, 0.0 * item])}
    assert run.policy((item,)) == run.policy(padded)
    with pytest.raises(Mistake, match="holds 3 items, more than max_items=2"):
        run.policy((item,) * 3)


def test_padded_sequence_env_refuses_a_missing_or_useless_maximum():
    with pytest.raises(Mistake, match="--env max_items=16"):
        envs.make(Growing, (0,), 1, workers=0)
    with pytest.raises(Mistake, match="Leave out max_items"):
        envs.make("gymnasium:FrozenLake-v1", (0,), 1, workers=0, max_items=2)


def test_padded_sequence_of_discrete_items_is_one_hot():
    class Words(Growing):
        observation_space = spaces.Dict(said=spaces.Sequence(spaces.Discrete(3, start=1)))

    env = PaddedObservations(Words(), 4)
    obs = env.observation({"said": (3, 1)})
    assert env.observation_space.contains(obs)
    features = Encoder.create(jax.random.key(0), env.observation_space)(
        jax.tree.map(jnp.asarray, obs)
    )
    assert features.shape == (128,)


@pytest.mark.parametrize(
    "ordinary",
    [
        {"ball.padded_count": spaces.Discrete(4), "ball.padded_items": spaces.Box(-1, 1, (3, 2))},
        {"padded_items": spaces.Box(-1, 1, (3, 2))},
        {"padded_count": spaces.Box(-1, 1, (2,)), "padded_items": spaces.Box(-1, 1, (3, 2))},
    ],
)
def test_ordinary_entries_named_like_padded_ones_are_vectors_and_normalised(ordinary):
    space = spaces.Dict(ordinary)
    kinds = [kind.name for kind in Encoder.create(jax.random.key(0), space).kinds]
    assert kinds[-1] == "vector"
    assert "part" not in kinds
    boxes = sum(isinstance(leaf, spaces.Box) for leaf in ordinary.values())
    assert sum(m is not None for m in ObsNormaliser.create(space).moments) == boxes
