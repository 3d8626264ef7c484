"""The setting plasticity: weights are renewed when it is due, and hidden units are measured."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling import envs
from sterling.algorithms.online import dqn, sac
from sterling.nets.mlp import HIDDEN, LAST_HIDDEN, MLP
from sterling.training.plasticity.hidden_unit_metrics import (
    as_members,
    dormant_share,
    hidden_outputs,
    rank_share,
)
from sterling.training.plasticity.network_upkeep import Upkeep
from sterling.training.plasticity.plasticity_words import Plasticity, parse_plasticity
from sterling.types import Mistake

SMALL = {"width": 8, "capacity": 500, "warmup": 50}


def make(algorithm, environment, seed=0, **fields):
    spec = envs.make(environment, (0,), 1).spec
    state = algorithm.init(jax.random.key(seed), spec, algorithm.Config(**SMALL, **fields))
    return spec, jax.tree.map(jnp.asarray, state)  # the fields of a Config are arrays in a run


def learned(state):
    """Return the state as after learning: all but its Config are other numbers."""

    def other(path, x):
        if "config" in jax.tree_util.keystr(path):
            return x
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x + 3
        return x + jax.random.normal(jax.random.key(len(path) + x.size), x.shape)

    return jax.tree_util.tree_map_with_path(other, state)


def last_metrics(folder):
    return json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])


def equal(one, other):
    return all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


def test_plasticity_reset_redraws_networks_and_targets_only():
    spec, state = make(sac, "Pendulum-v1")
    before = learned(state)
    upkeep = Upkeep("Pendulum", spec, period=10, last=30)
    key = jax.random.key(3)
    after = upkeep.renewed(sac, before, jnp.int32(9), key)
    assert not equal(after.actor, before.actor)
    assert equal(after.critics, after.target)  # as at the beginning
    assert equal(after.optimisers[0], jax.tree.map(jnp.zeros_like, before.optimisers[0]))
    assert after.log_alpha == before.log_alpha
    scale = np.abs(np.asarray(after.critics.first.layers[0].weight)).max()
    assert 0.3 < scale <= 4**-0.5  # U(-1/sqrt(inputs), 1/sqrt(inputs)) with 4 inputs
    again = upkeep.renewed(sac, before, jnp.int32(9), jax.random.key(4))
    assert not equal(again.actor, after.actor)
    for iteration in (8, 10, 39):  # not due, not due, too late
        assert equal(upkeep.renewed(sac, before, jnp.int32(iteration), key), before)


def test_perturbed_weights_are_a_mixture_of_old_and_new_ones():
    spec, state = make(dqn, "CartPole-v1")
    before, key = learned(state), jax.random.key(3)
    new = Upkeep("", spec, period=1, last=9).renewed(dqn, before, jnp.int32(0), key)
    mixed = Upkeep("", spec, period=1, last=9, keep=0.8).renewed(dqn, before, jnp.int32(0), key)
    for name in ("net", "target"):
        old, drawn, found = (
            np.asarray(getattr(each, name).advantage.layers[0].weight)
            for each in (before, new, mixed)
        )
        np.testing.assert_allclose(found, 0.8 * old + 0.2 * drawn, rtol=1e-6)
    assert mixed.updates == before.updates


def test_plasticity_decay_shrinks_weight_matrices_only():
    spec, state = make(dqn, "CartPole-v1", layer_norm=True)
    before = learned(state)
    after = Upkeep("", spec, decay=0.01).renewed(dqn, before, jnp.int32(0), jax.random.key(0))
    one, other = before.net.advantage, after.net.advantage
    np.testing.assert_allclose(other.layers[0].weight, 0.99 * one.layers[0].weight, rtol=1e-6)
    assert equal(one.layers[0].bias, other.layers[0].bias)
    assert equal(one.norms, other.norms)
    assert equal(before.optimiser, after.optimiser)


def test_dormant_and_rank_metrics_equal_numpy():
    random = np.random.default_rng(0)
    one, other = random.normal(size=(2, 50, 6)), random.normal(size=(1, 50, 4))
    one[0, :, 1] *= 0.02  # dormant: 0.02 of the layer's mean
    one[1, :, :3] = 0.0
    one[1, :, 4] *= 0.2
    assert dormant_share([jnp.float32(one), jnp.float32(other)]) == pytest.approx(4 / 16)
    shares = []
    for x in one:
        values = np.linalg.eigvalsh(np.cov(x.T))
        shares.append(values.sum() ** 2 / (values**2).sum() / 6)
    assert rank_share(jnp.float32(one)) == pytest.approx(np.mean(shares), rel=1e-5)


def test_hidden_unit_outputs_are_found_under_jit_and_vmap():
    net = MLP.uniform(jax.random.key(0), (3, 5, 4, 1), layer_norm=True)
    x = jax.random.normal(jax.random.key(1), (7, 3))
    first = jax.nn.relu(net.norms[0](net.layers[0](x)))
    found = hidden_outputs(jax.jit(lambda net, x: net(x) * 2), net, x)
    assert [mark for mark, _ in found] == [HIDDEN, LAST_HIDDEN]
    np.testing.assert_allclose(found[0][1], first, rtol=1e-4, atol=1e-6)
    pair = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), net)
    members = hidden_outputs(jax.vmap(lambda net, x: net(x), (0, None)), pair, x)
    shapes = [as_members(value, mark, 7).shape for mark, value in members]
    assert shapes == [(2, 7, 5), (2, 7, 4)]
    np.testing.assert_allclose(as_members(members[0][1], HIDDEN, 7)[0], first, rtol=1e-4, atol=1e-6)


def test_a_run_reports_dormant_units_and_learns_after_a_reset(tmp_path):
    def last_row(name, **options):
        run = sterling.train(
            *("dqn", "CartPole-v1"), steps=400, seeds=1, evaluate_episodes=0, log_every=50,
            out=tmp_path / name, preset=False, **SMALL, **options,
        )  # fmt: skip
        return last_metrics(tmp_path / name), run.agent.state.net

    row, reset = last_row("reset", plasticity="reset:120+units")
    assert 0.0 <= row["plasticity/value_dormant"][0] <= 1.0
    assert 0.0 < row["plasticity/policy_rank"][0] <= 1.0
    plain, net = last_row("plain")
    assert not any(name.startswith("plasticity") for name in plain)
    assert not equal(reset, net)


@pytest.mark.slow
def test_plasticity_metrics_cover_critic_ensembles(tmp_path):
    sterling.train(
        *("redq", "Pendulum-v1"), steps=120, seeds=1, evaluate_episodes=0, plasticity="units",
        out=tmp_path / "redq", **SMALL, learn=1, log_every=50,
    )  # fmt: skip
    assert 0.0 < last_metrics(tmp_path / "redq")["plasticity/value_rank"][0] <= 1.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rest:4", "Unknown plasticity='rest'.*reset"),
        ("reset", "write reset:EVERY"),
        ("reset:0", "EVERY must be a whole number"),
        ("reset:1.5", "EVERY must be a whole number"),
        ("perturb:100", "write perturb:EVERY,KEEP"),
        ("perturb:100,1", "KEEP must be between 0 and 1"),
        ("decay:2", "RATE must be between 0 and 1"),
        ("decay:x", "write decay:RATE"),
        ("units:3", "write units"),
        ("reset:5+perturb:5,0.5", "give reset or perturb once"),
    ],
)
def test_invalid_plasticity_option_is_refused(words, said):
    with pytest.raises(Mistake, match=said):
        parse_plasticity(words)


def test_plasticity_option_is_parsed():
    found = parse_plasticity("perturb:40_000,0.8 + decay:1e-4+units")
    assert found == Plasticity(every=40_000, keep=0.8, decay=1e-4, units=True)


@pytest.mark.parametrize(
    ("algorithm", "options", "said"),
    [
        ("dqn", {"plasticity": "reset:26_000", "preset": False}, "less than half of the budget"),
        ("recurrent-ppo", {"plasticity": "units"}, "acts with a memory"),
        ("dqn", {"plasticity": "decay:0.1", "then": ["steps=500"]}, "runs of one phase"),
    ],
)
def test_unsuitable_plasticity_option_is_refused(algorithm, options, said, tmp_path):
    with pytest.raises(Mistake, match=said):
        sterling.train(algorithm, "CartPole-v1", steps=60_000, out=tmp_path / "run", **options)
