"""Ensembles: each member computes what its own network computes."""

import jax
import jax.numpy as jnp
import numpy as np

from sterling import random_keys
from sterling.nets.ensemble import Ensemble
from sterling.nets.mlp import MLP


def make(key):
    return MLP.uniform(key, (3, 4, 2), "tanh")


def test_each_member_computes_what_its_own_network_computes():
    """Networks of other keys, in NumPy; taken members in the order asked for."""
    key = jax.random.key(0)
    ensemble = Ensemble.create(key, 3, make)
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    outputs = []
    for own in random_keys.split(key, "member", 3):
        first, last = make(own).layers
        hidden = np.tanh(x @ np.asarray(first.weight) + np.asarray(first.bias))
        outputs.append(hidden @ np.asarray(last.weight) + np.asarray(last.bias))
    np.testing.assert_allclose(ensemble(jnp.asarray(x)), outputs, rtol=1e-5, atol=1e-6)
    some = ensemble.take(jnp.asarray([2, 0]))(jnp.asarray(x))
    np.testing.assert_allclose(some, [outputs[2], outputs[0]], rtol=1e-5, atol=1e-6)


def test_every_pair_of_two_different_members_is_drawn_equally_often():
    """In 600 draws each of six ordered pairs of three members: 100 +- 4 standard deviations."""
    ensemble = Ensemble(jnp.arange(3.0))
    keys = jax.random.split(jax.random.key(1), 600)
    pairs = np.asarray(jax.vmap(lambda key: ensemble.random_pair(key).nets)(keys)).astype(int)
    counts = np.bincount(3 * pairs[:, 0] + pairs[:, 1], minlength=9).reshape(3, 3)
    np.testing.assert_array_equal(np.diag(counts), 0)
    assert np.abs(counts[~np.eye(3, dtype=bool)] - 100).max() < 4 * np.sqrt(600 / 6 * 5 / 6)
