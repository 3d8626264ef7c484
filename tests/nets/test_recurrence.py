"""Recurrent units: the scan over a rollout is the recurrence, and both are as in the papers."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy.linalg import expm

from sterling import random_keys
from sterling.actor import Past
from sterling.nets.recurrence.linear_recurrence import LRU, RADII
from sterling.nets.recurrence.lstm_unit import LSTM
from sterling.nets.recurrence.recurrent_network import GRU, UNITS, RecurrentCore
from sterling.nets.recurrence.rssm import Rssm
from sterling.nets.recurrence.state_space import S5, STEPS, normal_hippo
from sterling.types import Spec

WIDTH, TIME, ENVS = 6, 13, 3


def rollout(unit):
    """A memory, inputs, and rows that begin an episode: also the first row, and two in a row."""
    keys = jax.random.split(jax.random.key(1), 2)
    hidden = jax.random.normal(keys[0], (ENVS, unit.size))
    x = jax.random.normal(keys[1], (TIME, ENVS, WIDTH))
    begins = np.zeros((TIME, ENVS), bool)
    begins[[0, 4, 5, 9], [1, 0, 0, 2]] = True
    return hidden, x, jnp.asarray(begins)


def one_by_one(unit, hidden, x, begins):
    """The recurrence, row after row."""
    rows = []
    for row, first in zip(x, begins, strict=True):
        hidden = unit(jnp.where(first[:, None], 0.0, hidden), row)
        rows.append(hidden)
    return jnp.stack(rows)


@pytest.mark.parametrize("kind", UNITS)
def test_recurrent_unit_scan_equals_step_by_step_recurrence(kind):
    """Values, and the gradients of parameters, inputs and the first memory."""
    unit = UNITS[kind].create(jax.random.key(0), WIDTH, WIDTH)
    hidden, x, begins = rollout(unit)

    def total(way):
        def weighed(unit, hidden, x):
            made = way(unit, hidden, x, begins)
            return jnp.sum(jnp.sin(unit.read(made, x))), made

        grads, made = jax.jit(jax.grad(weighed, (0, 1, 2), has_aux=True))(unit, hidden, x)
        return jax.tree.leaves(grads), made

    (expected, memories), (found, unrolled) = total(one_by_one), total(type(unit).unroll)
    np.testing.assert_allclose(unrolled, memories, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
    assert all(np.abs(each).max() > 1e-3 for each in expected)


@pytest.mark.parametrize("kind", UNITS)
def test_recurrent_unit_resets_its_state_at_episode_starts(kind):
    unit = UNITS[kind].create(jax.random.key(0), WIDTH, WIDTH)
    hidden, x, begins = rollout(unit)
    changed = x.at[:4, 0].add(3.0)
    unroll = jax.jit(lambda x: unit.unroll(hidden, x, begins))
    plain, other = unroll(x), unroll(changed)
    np.testing.assert_array_equal(plain[4:, 0], other[4:, 0])
    assert np.abs(plain[3, 0] - other[3, 0]).max() > 0.1


def test_lru_step_matches_hand_values():
    unit = LRU.create(jax.random.key(2), WIDTH, WIDTH)
    hidden, x, _ = rollout(unit)
    x = x[0]
    at = {name: np.asarray(getattr(unit, name), np.float64) for name in ("nu", "theta", "direct")}
    decay = np.exp(-np.exp(at["nu"]) + 1j * np.exp(at["theta"]))
    b, c = np.asarray(unit.inputs.weight), np.asarray(unit.outputs.weight)
    before = np.asarray(hidden[:, :WIDTH]) + 1j * np.asarray(hidden[:, WIDTH:])
    given = np.asarray(x) @ (b[:, :WIDTH] + 1j * b[:, WIDTH:])
    h = decay * before + np.exp(np.asarray(unit.log_gamma)) * given
    after = unit(hidden, x)
    np.testing.assert_allclose(after, np.concatenate([h.real, h.imag], 1), rtol=1e-4, atol=1e-5)
    # Re(C h) of the paper, with C = c_re - i c_im in the layout of the real parts
    y = (h @ (c[:WIDTH] - 1j * c[WIDTH:])).real + at["direct"] * np.asarray(x)
    y = np.asarray(jax.nn.gelu(jnp.asarray(y, jnp.float32)))
    linear, gate = np.split(y @ np.asarray(unit.gate.weight), 2, 1)
    expected = np.asarray(x) + linear / (1.0 + np.exp(-gate))
    np.testing.assert_allclose(unit.read(after, x), expected, rtol=1e-3, atol=1e-4)


def test_lru_eigenvalues_begin_on_their_ring_and_stay_stable():
    unit = LRU.create(jax.random.key(0), 256, 256)
    radius = np.exp(-np.exp(np.asarray(unit.nu)))
    assert RADII[0] <= radius.min() < 0.92
    assert 0.98 < radius.max() <= RADII[1]
    np.testing.assert_allclose(np.exp(unit.log_gamma), np.sqrt(1.0 - radius**2), rtol=1e-3)
    assert unit.theta.shape == (256,)
    wild = jnp.abs(jnp.exp(-jnp.exp(jnp.asarray([-10.0, 0.0, 30.0]))))
    assert (wild <= 1.0).all()


def test_lstm_step_matches_hand_values():
    unit = LSTM.create(jax.random.key(3), WIDTH, WIDTH)
    hidden, x, _ = rollout(unit)
    h, c = np.split(np.asarray(hidden), 2, 1)
    sums = np.asarray(x[0]) @ np.asarray(unit.inputs.weight) + np.asarray(unit.inputs.bias)
    write, keep, show, new = np.split(sums + h @ np.asarray(unit.hidden.weight), 4, 1)
    on = lambda v: 1.0 / (1.0 + np.exp(-v))  # noqa: E731
    c = on(keep) * c + on(write) * np.tanh(new)
    h = on(show) * np.tanh(c)
    after = unit(hidden, x[0])
    np.testing.assert_allclose(after, np.concatenate([h, c], 1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(unit.read(after, x[0]), after[:, :WIDTH])
    assert isinstance(UNITS["gru"].create(jax.random.key(0), 4, 4), GRU)


def test_the_state_space_layer_begins_as_hippo_n_held_over_its_steps():
    """In plain NumPy, with the whole real system and its matrix exponential."""
    unit = S5.create(jax.random.key(2), WIDTH, WIDTH)
    unit = eqx.tree_at(lambda at: at.log_step, unit, jnp.full(WIDTH, np.log(0.3)))
    states, n = 2 * WIDTH, np.arange(2 * WIDTH)
    legs = -np.sqrt(np.outer(2 * n + 1, 2 * n + 1))  # HiPPO-LegS: below the diagonal, n + 1 on it
    legs = np.tril(legs, -1) - np.diag(n + 1.0)
    root = np.sqrt(n + 0.5)
    normal = legs + np.outer(root, root)  # plus the term of rank one
    np.testing.assert_allclose(normal_hippo(states), normal, atol=1e-12)
    frequency, vectors = np.linalg.eigh(-1j * (normal + 0.5 * np.eye(states)))
    vectors = vectors[:, WIDTH:]
    np.testing.assert_allclose(
        normal @ vectors, vectors * (-0.5 + 1j * frequency[WIDTH:]), atol=1e-9
    )
    np.testing.assert_allclose(unit.frequency, frequency[WIDTH:], rtol=1e-5)
    real, imaginary = np.split(np.asarray(unit.inputs.weight, np.float64), 2, 1)
    driven = 2.0 * (vectors @ (real + 1j * imaginary).T).real  # B_real
    real, imaginary = np.split(np.asarray(unit.outputs.weight, np.float64), 2, 0)
    shown = ((real - 1j * imaginary).T @ vectors.conj().T).real  # C_real: C is stored doubled
    passed = expm(0.3 * normal)
    held = np.linalg.solve(normal, passed - np.eye(states)) @ driven
    _, x, _ = rollout(unit)
    h, memory = np.zeros((ENVS, states)), jnp.zeros((ENVS, unit.size))
    for row in np.asarray(x):
        h, memory = h @ passed.T + row @ held.T, unit(memory, jnp.asarray(row))
    y = h @ shown.T + np.asarray(unit.direct) * row
    g = np.asarray(jax.nn.gelu(jnp.asarray(y, jnp.float32)))
    expected = row + g / (1.0 + np.exp(-g @ np.asarray(unit.gate.weight)))
    np.testing.assert_allclose(unit.read(memory, jnp.asarray(row)), expected, rtol=1e-3, atol=1e-4)


def test_the_state_space_layer_by_hand():
    """One step with a step size of each unit's own, in complex numbers."""
    unit = S5.create(jax.random.key(2), WIDTH, WIDTH)
    hidden, x, _ = rollout(unit)
    rate = -np.exp(np.asarray(unit.log_damping)) + 1j * np.asarray(unit.frequency)
    np.testing.assert_allclose(rate.real, -0.5, rtol=1e-6)
    step = np.exp(np.asarray(unit.log_step))
    assert STEPS[0] < step.min() < 0.05 < step.max() < STEPS[1]
    b = np.asarray(unit.inputs.weight)
    before = np.asarray(hidden[:, :WIDTH]) + 1j * np.asarray(hidden[:, WIDTH:])
    given = np.asarray(x[0]) @ (b[:, :WIDTH] + 1j * b[:, WIDTH:])
    decay = np.exp(rate * step)
    h = decay * before + (decay - 1.0) / rate * given
    found = unit(hidden, x[0])
    np.testing.assert_allclose(found, np.concatenate([h.real, h.imag], 1), rtol=1e-4, atol=1e-5)


def test_core_remembers_for_every_agent_of_a_team_as_if_it_were_alone():
    """Observations and actions have an axis of agents; rewards and beginnings are the team's."""
    agents, rng = 2, np.random.default_rng(0)
    spec = Spec(spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Discrete(4))
    core = RecurrentCore(*RecurrentCore.parts(jax.random.key(0), spec, WIDTH))
    hidden, _, begins = rollout(core.memory)
    hidden = jnp.stack([hidden, 1.0 - hidden], 1)
    obs = jnp.asarray(rng.normal(size=(TIME, ENVS, agents, 3)), jnp.float32)
    action = jnp.asarray(rng.integers(4, size=(TIME, ENVS, agents)))
    reward = jnp.asarray(rng.normal(size=(TIME, ENVS)), jnp.float32)
    found = core.unroll(hidden, core.inputs(obs, action, reward, begins), begins)
    for agent in range(agents):
        inputs = core.inputs(obs[:, :, agent], action[..., agent], reward, begins)
        alone = core.unroll(hidden[:, agent], inputs, begins)
        np.testing.assert_allclose(found[:, :, agent], alone, rtol=1e-5, atol=1e-6)
    past = Past(hidden, action[0], reward[0], reward[0], begins[1])
    memory, features = core.remember(past, obs[1])
    assert memory.shape == features.shape == (ENVS, agents, WIDTH)


def test_rssm_unrolls_as_it_observes_and_begins_episodes_with_nothing():
    """Rows one by one, the reset at every first row written out; z are one-hot draws of q."""
    model = Rssm.create(jax.random.key(0), (2, 3), WIDTH, groups=2, classes=4)
    keys = jax.random.split(jax.random.key(1), 3)
    s = jax.random.normal(keys[0], (ENVS, model.size))
    action, seen = (jax.random.normal(keys[n - 2], (TIME, ENVS, n)) for n in (2, 3))
    first = rollout(model.memory)[2]
    found, q = model.unroll(s, action, first, seen, keys[2])
    for t, key in enumerate(random_keys.split(keys[2], "row", TIME)):
        begun = first[t][:, None]
        before = jnp.where(begun, 0.0, s), jnp.where(begun, 0.0, action[t])
        s, own = model.observe(*before, jnp.zeros(ENVS, bool), seen[t], key)
        np.testing.assert_allclose(found[t], s, atol=1e-6)
        np.testing.assert_allclose(q.log_p[t], own.log_p, atol=1e-5)
    drawn = np.asarray(found[..., WIDTH:]).reshape(TIME, ENVS, 2, 4)
    np.testing.assert_allclose(np.sort(drawn)[..., -1], 1.0, atol=1e-6)


def test_rssm_imagines_from_state_and_action_what_it_expects():
    """h is that of an observed row; z follows p(h), which knows nothing of observations."""
    model = Rssm.create(jax.random.key(0), (2, 3), WIDTH, groups=2, classes=4)
    keys = jax.random.split(jax.random.key(1), 2)
    one = jax.random.normal(keys[0], (1, model.size + 2))
    s, action = jnp.split(jnp.broadcast_to(one, (4_000, model.size + 2)), [model.size], -1)
    imagined = model.imagine(s, action, keys[1])
    first, seen = jnp.zeros(4_000, bool), jnp.zeros((4_000, 3))
    observed, _ = model.observe(s, action, first, seen, keys[1])
    np.testing.assert_allclose(imagined[:, :WIDTH], observed[:, :WIDTH], atol=1e-6)
    p = np.exp(model.expected(observed[:1]).log_p).ravel()
    np.testing.assert_allclose(np.asarray(imagined)[:, WIDTH:].mean(0), p, atol=0.03)
