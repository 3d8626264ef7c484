"""Improvement under limits of the KL: rlax's losses of MPO and V-MPO, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from sterling.algorithms.on_policy import v_mpo
from sterling.equations.limited_improvement import (
    improved_weights,
    limited_kl_losses,
    positive,
    raw_dual,
    temperature_loss,
    upper_half,
)
from sterling.nets.distributions import Normal

ROWS, SAMPLES = 14, 5
LIMITS = {"mean": 0.03, "deviation": 0.002}
EPSILON = 0.1  # of the temperature


def numbers(seed=0):
    """What the losses are differentiated by, and an advantage or Q of every row or sample."""
    rng = np.random.default_rng(seed)
    learned = {
        "log_prob": rng.normal(size=ROWS),
        "samples": rng.normal(size=(SAMPLES, ROWS)),
        "kl": {name: rng.uniform(0.0, 0.1, ROWS) for name in LIMITS},
        "raw": {name: rng.normal() for name in ("temperature", *LIMITS)},
    }
    learned = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), learned)
    value = jnp.asarray(2.0 * rng.normal(size=(SAMPLES, ROWS)), jnp.float32)
    return learned, value


def penalties(learned):
    """The same as rlax takes it."""
    each = [
        (learned["kl"][name], rlax.LagrangePenalty(learned["raw"][name], jnp.float32(limit)))
        for name, limit in LIMITS.items()
    ]
    temperature = rlax.LagrangePenalty(learned["raw"]["temperature"], jnp.float32(EPSILON))
    return {"temperature_constraint": temperature, "kl_constraints": each}


def agree(ours, theirs, learned):
    """Equal values and gradients."""
    (one, first), (other, second) = (jax.value_and_grad(f)(learned) for f in (ours, theirs))
    np.testing.assert_allclose(one, other, rtol=1e-5)
    assert any(np.abs(leaf).max() > 0.01 for leaf in jax.tree.leaves(first["raw"]))
    for leaf, wanted in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(leaf, wanted, rtol=1e-4, atol=1e-6)


def of_limits(learned, duals):
    every = jnp.ones(ROWS, bool)
    return limited_kl_losses(learned["kl"], duals, LIMITS, every)[0]


def test_v_mpo_losses_equal_rlax():
    learned, value = numbers()
    rows = {"advantage": value[0], "mask": jnp.ones(ROWS, bool)}
    config = v_mpo.Config(temperature_kl=EPSILON)

    def ours(learned):
        duals = {name: positive(raw) for name, raw in learned["raw"].items()}
        both = v_mpo.improvement_losses(learned["log_prob"], rows, duals["temperature"], config)
        return sum(both) + of_limits(learned, duals)

    def theirs(learned):
        loss, _ = rlax.vmpo_loss(
            learned["log_prob"],
            rows["advantage"],
            **penalties(learned),
            projection_operator=positive,
        )
        return loss.mean()

    agree(ours, theirs, learned)


def test_mpo_losses_equal_rlax():
    learned, value = numbers(1)

    def ours(learned):
        duals = {name: positive(raw) for name, raw in learned["raw"].items()}
        prior = jnp.full(value.shape, -np.log(SAMPLES))
        weight, log_mean = improved_weights(value, prior, duals["temperature"])
        loss = temperature_loss(duals["temperature"], log_mean, EPSILON)
        fit = -jnp.sum(weight * learned["samples"], 0)
        return jnp.mean(fit + loss) + of_limits(learned, duals)

    def theirs(learned):
        loss, _ = rlax.mpo_loss(
            learned["samples"], value, **penalties(learned), projection_operator=positive
        )
        return loss.mean()

    agree(ours, theirs, learned)


def test_mpo_weights_at_the_optimal_temperature_meet_the_kl_limit():
    """What the temperature's loss is for: KL(q || p) is its ``limit`` where its slope is 0."""
    value = jnp.asarray([0.0, 1.0, 3.0, -2.0])
    log_prior = jnp.log(jnp.asarray([0.1, 0.2, 0.3, 0.4]))

    def slope(temperature):
        def loss(x):
            return temperature_loss(x, improved_weights(value, log_prior, x)[1], EPSILON)

        return jax.grad(loss)(temperature)

    low, high = 0.1, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(jnp.float32(middle)) < 0 else (low, middle)
    weight, _ = improved_weights(value, log_prior, jnp.float32(low))
    found = jnp.sum(weight * (jnp.log(weight) - log_prior))
    np.testing.assert_allclose(found, EPSILON, rtol=1e-3)


@pytest.mark.parametrize("value", [1e-6, 0.5, 10.0, 1000.0])
def test_mpo_dual_variable_begins_at_its_setting(value):
    np.testing.assert_allclose(positive(raw_dual(value)), value, rtol=1e-3)


def test_v_mpo_upper_half_counts_unmasked_rows_only():
    x = jnp.asarray([5.0, 1.0, 2.0, 9.0, 3.0, 2.0])
    mask = jnp.asarray([True, True, True, False, True, True])
    np.testing.assert_array_equal(upper_half(x, mask), [True, False, False, False, True, False])
    np.testing.assert_array_equal(upper_half(x, jnp.arange(6) == 1), jnp.arange(6) == 1)
    assert not upper_half(x, jnp.zeros(6, bool)).any()


def test_normal_kl_splits_into_mean_and_deviation_parts():
    """And by the equations of V-MPO's appendix: 1/2 (m - m')^2 / s^2 and the rest."""
    rng = np.random.default_rng(3)
    mean, log_std, new_mean, new_log_std = rng.normal(size=(4, 6, 2)).astype(np.float32)
    parts = Normal(*map(jnp.asarray, (mean, log_std))).kl_parts(
        Normal(*map(jnp.asarray, (new_mean, new_log_std)))
    )
    moved = 0.5 * ((mean - new_mean) ** 2 / np.exp(2 * log_std)).sum(-1)
    ratio = np.exp(2 * (log_std - new_log_std))
    np.testing.assert_allclose(parts["mean"], moved, rtol=1e-5)
    wider = 0.5 * (ratio - 1.0 - np.log(ratio)).sum(-1)
    np.testing.assert_allclose(parts["deviation"], wider, rtol=1e-4, atol=1e-6)
