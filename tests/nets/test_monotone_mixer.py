"""The mixer of QMIX rises with every agent's value; its numbers are those of its equation."""

import jax
import jax.numpy as jnp
import numpy as np

from sterling.nets.mlp import MLP, Linear
from sterling.nets.special_layers.monotone_mixer import MonotoneMixer


def test_team_value_rises_with_every_agents_value():
    """For random parameters, values and states: the derivative by any agent's value is > 0."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        mixer = MonotoneMixer.create(jax.random.key(seed), 3, 5, 8)
        mixer = jax.tree.map(
            lambda x, rng=rng: jnp.asarray(rng.normal(size=x.shape), x.dtype), mixer
        )
        q, state = (jnp.asarray(rng.normal(size=(20, n)), jnp.float32) for n in (3, 5))
        slope = jax.grad(lambda q, mixer=mixer, state=state: mixer(q, state).sum())(q)
        assert slope.shape == (20, 3)
        assert (slope > 0.0).all()


def constant(*numbers):
    """A network that returns these numbers, whatever the state."""
    bias = jnp.asarray(numbers, jnp.float32)
    return MLP((Linear(jnp.zeros((1, len(numbers))), bias),), "relu")


def test_team_value_is_that_of_its_equation_by_hand():
    """Two agents, two hidden units: W1 = |[[1, -2], [-3, 0.5]]|, b1 = [0, -4], w2 = |[-2, 1]|,
    b2 = 0.25 and q = [1, 0.5]: hidden = elu([2.5, -1.75]), Q_tot = 5 + e^-1.75 - 1 + 0.25."""
    mixer = MonotoneMixer(
        constant(1.0, -2.0, -3.0, 0.5), constant(0.0, -4.0), constant(-2.0, 1.0), constant(0.25)
    )
    found = mixer(jnp.array([[1.0, 0.5]]), jnp.zeros((1, 1)))
    np.testing.assert_allclose(found, [4.25 + np.exp(-1.75)], rtol=1e-6)


def test_unit_weights_mix_positive_values_to_their_sum():
    """VDN's sum of values (Sunehag 2018) is one of the functions that the mixer can be."""
    mixer = MonotoneMixer(constant(1.0, 1.0, 1.0), constant(0.0), constant(1.0), constant(0.0))
    q = jnp.array([[0.5, 2.0, 3.0], [1.0, 0.0, 0.25]])
    np.testing.assert_allclose(mixer(q, jnp.zeros((2, 1))), [5.5, 1.25], rtol=1e-6)
