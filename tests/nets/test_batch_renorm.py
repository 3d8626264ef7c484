"""Batch renormalisation against NumPy (Ioffe 2017, algorithm 1), and what follows from it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.nets.special_layers.batch_renorm import (
    BatchRenorm,
    BatchStatistics,
    RenormalisedMLP,
    Running,
    split_running,
)

ROWS, UNITS = 9, 4
MASK = np.arange(ROWS) != 5
# of the four units: r above 3, r below 1/3, d above 5, d below -5; all else within the bounds
MEAN, VARIANCE = np.array([0.0, 0.3, -9.0, 9.0]), np.array([0.02, 40.0, 1.0, 1.0])


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(ROWS, UNITS)) * [1.0, 1.0, 0.9, 1.1]


def ioffe(x, scale, shift, warm):
    """Algorithm 1, with bounds of 3 and 5."""
    batch_std, std = np.sqrt(x.var(0) + 1e-3), np.sqrt(VARIANCE + 1e-3)
    r = np.clip(batch_std / std, 1 / 3, 3) if warm else 1.0
    d = np.clip((x.mean(0) - MEAN) / std, -5, 5) if warm else 0.0
    return ((x - x.mean(0)) / batch_std * r + d) * scale + shift


def layer():
    scale, shift = np.random.default_rng(1).normal(size=(2, UNITS))
    made = BatchRenorm(jnp.asarray(scale, jnp.float32), jnp.asarray(shift, jnp.float32))
    by = BatchStatistics(jnp.asarray(MEAN, jnp.float32), jnp.asarray(VARIANCE, jnp.float32))
    return made, by, scale, shift


@pytest.mark.parametrize("warm", [False, True])
def test_batch_renorm_training_equals_ioffes_algorithm_on_unmasked_rows(rows, warm):
    made, by, scale, shift = layer()
    garbage = jnp.asarray(np.where(MASK[:, None], rows, 70.0), jnp.float32)
    found, batch = made.train(garbage, jnp.asarray(MASK), by, jnp.asarray(warm))
    wanted = ioffe(rows[MASK], scale, shift, warm)
    np.testing.assert_allclose(np.asarray(found)[MASK], wanted, rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(batch.mean, rows[MASK].mean(0), atol=1e-6)
    np.testing.assert_allclose(batch.variance, rows[MASK].var(0), atol=1e-6)


def test_batch_renorm_test_rows_reach_every_clip_bound(rows):
    x, std = rows[MASK], np.sqrt(VARIANCE + 1e-3)
    r, d = np.sqrt(x.var(0) + 1e-3) / std, (x.mean(0) - MEAN) / std
    assert r[0] > 3
    assert r[1] < 1 / 3
    assert d[2] > 5
    assert d[3] < -5


def test_batch_renorm_gradient_takes_r_and_d_as_constants(rows):
    made, by, scale, _ = layer()
    x, keep = rows[MASK], np.random.default_rng(2).normal(size=(MASK.sum(), UNITS))
    mask, warm = jnp.ones(len(x), bool), jnp.asarray(True)

    def loss(x):
        return jnp.sum(made.train(x, mask, by, warm)[0] * jnp.asarray(keep, jnp.float32))

    found = jax.grad(loss)(jnp.asarray(x, jnp.float32))
    std = np.sqrt(VARIANCE + 1e-3)
    r = np.clip(np.sqrt(x.var(0) + 1e-3) / std, 1 / 3, 3)
    wanted = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        sides = []
        for step in (1e-5, -1e-5):
            moved = x.copy()
            moved[place] += step
            unit = (moved - moved.mean(0)) / np.sqrt(moved.var(0) + 1e-3) * r
            sides.append(np.sum(unit * scale * keep))
        wanted[place] = (sides[0] - sides[1]) / 2e-5
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def test_batch_renorm_training_equals_inference_within_the_bounds(rows):
    made, _, _, _ = layer()
    x = jnp.asarray(rows, jnp.float32)
    near = BatchStatistics(jnp.asarray(rows.mean(0) + 0.5, jnp.float32), jnp.full(UNITS, 1.5))
    trained, _ = made.train(x, jnp.ones(ROWS, bool), near, jnp.asarray(True))
    np.testing.assert_allclose(trained, made(x, near), rtol=1e-4, atol=1e-5)


def test_batch_renorm_outputs_depend_on_the_other_rows_of_the_batch(rows):
    """Which is why (s, a) and (s', a') go through critics as one batch."""
    net = RenormalisedMLP.create(jax.random.key(0), (UNITS, 5, 1))
    x, mask = jnp.asarray(rows, jnp.float32), jnp.ones(ROWS, bool)
    half, _ = net.train(x[:4], mask[:4], 100, 0.9)
    both, _ = net.train(x, mask, 100, 0.9)
    assert np.abs(np.asarray(both[:4] - half)).max() > 1e-3


def test_batch_renorm_running_averages_converge_to_batch_statistics(rows):
    """And the warm-up ends after as many batches as it should have."""
    net = RenormalisedMLP.create(jax.random.key(0), (UNITS, 5, 1))
    x, mask = jnp.asarray(3.0 * rows + 1.0, jnp.float32), jnp.asarray(MASK)
    outputs = []
    for _ in range(120):
        y, running = net.train(x, mask, 100, 0.9)
        outputs.append(np.asarray(y)[MASK])
        net = eqx.tree_at(lambda net: net.running, net, running)
    assert int(net.running.batches) == 120
    seen = 3.0 * rows[MASK] + 1.0
    np.testing.assert_allclose(net.running.layers[0].mean, seen.mean(0), rtol=1e-3)
    np.testing.assert_allclose(net.running.layers[0].variance, seen.var(0), rtol=1e-3)
    np.testing.assert_allclose(np.asarray(net(x))[MASK], outputs[-1], atol=1e-3)
    np.testing.assert_array_equal(outputs[0], outputs[99])  # the batch's statistics alone


def test_batch_renorm_splits_parameters_from_running_averages():
    net = RenormalisedMLP.create(jax.random.key(0), (UNITS, 5, 1))
    parameters, running = split_running(net)
    assert not jax.tree.leaves(parameters.running)
    assert len(jax.tree.leaves(running)) == len(jax.tree.leaves(net.running)) == 5
    whole = eqx.combine(parameters, running)
    assert jax.tree.structure(whole) == jax.tree.structure(net)
    assert isinstance(whole.running, Running)
