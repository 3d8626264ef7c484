"""The decision transformer: what it may look at, what it remembers, what it learns."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_key
from gymnasium import spaces

from sterling.actor import Past
from sterling.algorithms.offline import dt
from sterling.nets.running_statistics import STD_OFFSET
from sterling.types import Log, Mistake, Record, Sequences, Spec

OBS, LENGTH, ENVS = 3, 4, 2
BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
CHOICES = spaces.Discrete(3)
SEVERAL = spaces.MultiDiscrete([2, 3])
VECTOR = spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
AS_IT_IS = np.full(OBS, 1.0 - STD_OFFSET)  # deviations at which observations pass unscaled
LOG = Log(np.zeros(OBS), AS_IT_IS, (0.0, 1.0), (-50.0, 20.0), 9)
KEY = constant_key(0)


def make(action=BOX, log=LOG, **fields):
    made = {"width": 8, "layers": 2, "heads": 2, "length": LENGTH, "rise": 1, "lr": 0.01, **fields}
    config = dt.Config(**made)
    return jax.jit(lambda key: dt.init(key, Spec(VECTOR, action, log=log), config))(KEY)


def batch_of(action=BOX, rows=3, seed=0):
    rng = np.random.default_rng(seed)
    shape = (rows, LENGTH)
    taken = np.tanh(rng.normal(size=(*shape, 2))).astype(np.float32)
    if action is CHOICES:
        taken = rng.integers(3, size=shape).astype(np.int32)
    if action is SEVERAL:
        taken = np.stack([rng.integers(n, size=shape) for n in (2, 3)], -1).astype(np.int32)
    obs = jnp.asarray(rng.normal(size=(*shape, OBS)), jnp.float32)
    time = jnp.broadcast_to(jnp.arange(LENGTH, dtype=jnp.int32)[None], shape)
    to_end = jnp.asarray(rng.normal(size=shape) * 20.0, jnp.float32)
    return Record(
        obs=obs,
        action=jnp.asarray(taken),
        reward=jnp.asarray(rng.normal(size=shape), jnp.float32),
        discount=jnp.ones(shape),
        next_obs=obs,
        last=jnp.zeros(shape, bool),
        mask=jnp.ones(shape, bool),
        extras={"time": time, "monte_carlo": to_end},
    )


@jax.jit
def outputs(state, batch):
    wanted = batch.extras["monte_carlo"] / state.scale
    action = state.actions.encode(batch.action)
    features = state.nets.torso(state.normaliser(batch.obs))
    return state.nets(dt.Context(wanted, features, action, batch.extras["time"], batch.mask))


RECALL = jax.jit(dt.recall, static_argnums=4)


def test_decision_transformer_needs_sequences_with_undiscounted_returns():
    assert dt.needs(dt.Config(batch=8, length=5, learn=2)) == Sequences(8, 5, 2, 1.0)


def test_decision_transformer_takes_return_scale_and_target_from_the_log():
    state = make()
    assert float(state.scale) == 50.0
    np.testing.assert_allclose(state.target, 20.0 / 50.0)
    assert state.nets.of_time.shape == (9, 8)
    np.testing.assert_allclose(make(target=100.0).target, 2.0)
    assert make(log=None, target=3.0, horizon=7).nets.of_time.shape == (7, 8)
    with pytest.raises(Mistake, match="data="):
        make(log=None, target=3.0)


def test_decision_transformer_attention_is_causal():
    """Changing the return, the state or the action at step 2 changes what the causal order lets."""
    state, batch = make(), batch_of()
    clean = outputs(state, batch)

    def changed(which):
        if which == "return":
            to_end = batch.extras["monte_carlo"].at[:, 2].add(90.0)
            return dataclasses.replace(batch, extras={**batch.extras, "monte_carlo": to_end})
        return dataclasses.replace(batch, **{which: getattr(batch, which).at[:, 2].add(0.9)})

    for which, first in (("return", 2), ("obs", 2), ("action", 3)):
        found = outputs(state, changed(which))
        np.testing.assert_array_equal(found[:, :first], clean[:, :first])
        assert np.abs(found[:, first:] - clean[:, first:]).max() > 1e-3


def test_decision_transformer_ignores_padding():
    state, batch = make(), batch_of()
    mask = batch.mask.at[:, :2].set(False)
    padded = dataclasses.replace(batch, mask=mask)
    dirty = dataclasses.replace(padded, obs=batch.obs.at[:, :2].set(1e3))
    np.testing.assert_array_equal(outputs(state, padded)[:, 2:], outputs(state, dirty)[:, 2:])
    one, other = (jax.jit(dt.learn)(state, b, KEY)[0] for b in (padded, dirty))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_decision_transformer_of_long_contexts_can_be_exported():
    """It has no loop whose length is computed: exported policies have none."""
    state, batch = make(), batch_of()
    long = jax.tree.map(lambda x: jnp.concatenate([x] * 15, 1), batch)
    program = str(jax.make_jaxpr(outputs)(state, long))
    assert f"{3 * 15 * LENGTH}" in program
    assert "while" not in program


@pytest.mark.slow
@pytest.mark.parametrize("action", [BOX, CHOICES, SEVERAL], ids=["box", "choices", "several"])
def test_decision_transformer_loss_matches_hand_values(action):
    state, batch = make(action), batch_of(action)
    batch = dataclasses.replace(batch, mask=batch.mask.at[0, :3].set(False))
    out, taken, mask = (np.asarray(x) for x in (outputs(state, batch), batch.action, batch.mask))
    if action is BOX:
        each = ((np.tanh(out) - taken) ** 2).mean(-1)
    else:
        parts = (
            [(out, taken)]
            if action is CHOICES
            else [(out[..., :2], taken[..., 0]), (out[..., 2:], taken[..., 1])]
        )
        each = 0.0
        for logits, chosen in parts:
            log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            each = each - np.take_along_axis(log_p, chosen[..., None], -1)[..., 0]
    found, _ = dt.loss(state.nets, state, batch)
    np.testing.assert_allclose(found, each[mask].mean(), rtol=1e-4)


def test_decision_transformer_warms_up_learning_rate_and_decays_weights():
    batch = batch_of()
    state = make(rise=4, lr=0.01, weight_decay=0.5)
    once, signals = jax.jit(dt.learn)(state, batch, KEY)
    whole, _ = jax.jit(dt.learn)(make(rise=1, lr=0.01, weight_decay=0.5), batch, KEY)
    name = "of_time"  # its last row is never looked up: no gradient, only decay
    before, after = getattr(state.nets, name)[-1], getattr(once.nets, name)[-1]
    np.testing.assert_allclose(after, before * (1.0 - 0.0025 * 0.5), rtol=1e-5)
    np.testing.assert_allclose(whole.nets.of_time[-1], before * (1.0 - 0.01 * 0.5), rtol=1e-5)
    assert int(once.updates) == 1
    assert signals.metrics["loss/grad_norm"] > 0.0


def begun(state, envs):
    """What is known where an episode begins."""
    action, none = state.actions.nothing((envs,)), jnp.zeros(envs)
    return Past(dt.memory(state, envs, KEY), action, none, none + 1.0, jnp.ones(envs, bool))


def test_decision_transformer_step_by_step_acting_equals_whole_sequence():
    """Acting step by step gives what the model says of the same steps at once, also when more
    than it can see have passed."""
    state = make(target=30.0)
    rng = np.random.default_rng(3)
    obs = jnp.asarray(rng.normal(size=(6, ENVS, OBS)), jnp.float32)
    reward = jnp.asarray(rng.normal(size=(6, ENVS)) * 10.0, jnp.float32)
    past, actions = begun(state, ENVS), []
    for step in range(6):
        action, memory, _ = RECALL(state, past, obs[step], KEY, False)
        actions.append(action)
        past = Past(memory, action, reward[step], jnp.ones(ENVS), jnp.zeros(ENVS, bool))
    spent, said = jnp.cumsum(reward, 0) - reward, jax.jit(lambda x: jnp.tanh(state.nets(x)[:, -1]))
    for last in (0, 2, 5):
        first = max(0, last + 1 - LENGTH)
        rows = jnp.arange(first, last + 1)
        wide = (ENVS, rows.size)
        context = dt.Context(
            (30.0 - spent[rows].T) / state.scale,
            jnp.moveaxis(obs[rows], 0, 1),
            jnp.moveaxis(jnp.stack(actions)[rows], 0, 1),
            jnp.broadcast_to(rows.astype(jnp.int32)[None], wide),
            jnp.ones(wide, bool),
        )
        expected = said(context)
        np.testing.assert_allclose(actions[last], expected, rtol=1e-4, atol=1e-5)


def test_decision_transformer_context_flattens_actions_of_any_shape():
    """A box of (2, 3) numbers is six in the context."""
    state = make(spaces.Box(-1.0, 1.0, (2, 3), np.float32))
    obs, no = jnp.ones((ENVS, OBS)), jnp.zeros(ENVS, bool)
    action, memory, _ = RECALL(state, begun(state, ENVS), obs, KEY, False)
    assert action.shape == (ENVS, 2, 3)
    past = Past(memory, action, jnp.zeros(ENVS), jnp.ones(ENVS), no)
    memory = RECALL(state, past, obs, KEY, False)[1]
    np.testing.assert_array_equal(memory.context.action[:, -2], action.reshape(ENVS, 6))


def test_decision_transformer_samples_discrete_actions_only_to_explore():
    state = make(CHOICES)
    obs = jnp.zeros((500, OBS))
    greedy = RECALL(state, begun(state, 500), obs, KEY, False)[0]
    assert np.unique(greedy).size == 1
    assert np.unique(RECALL(state, begun(state, 500), obs, KEY, True)[0]).size > 1
    assert greedy.dtype == jnp.int32


@pytest.mark.slow
def test_decision_transformer_high_target_return_selects_the_better_action():
    """Two steps; an action of 1 earns 1, of 0 nothing; the log is of chance."""
    rng = np.random.default_rng(0)
    taken = rng.integers(2, size=(2000, 2))
    to_end = np.stack([taken.sum(1), taken[:, 1]], 1).astype(np.float32)
    rows = {
        "obs": np.zeros((2000, 2, OBS), np.float32),
        "action": taken.astype(np.int32),
        "reward": taken.astype(np.float32),
        "to_end": to_end,
    }
    log = Log(np.zeros(OBS), np.ones(OBS), (0.5, 0.5), (0.0, 2.0), 2)
    fields = {"length": 2, "width": 16, "rise": 50, "lr": 3e-3, "normalise_obs": False}
    state = make(spaces.Discrete(2), log, **fields)
    shape = (64, 2)
    time = jnp.broadcast_to(jnp.arange(2, dtype=jnp.int32)[None], shape)
    whole = {name: jnp.asarray(x) for name, x in rows.items()}

    def update(state, key):
        index = jax.random.randint(key, (64,), 0, 2000)
        part = {name: x[index] for name, x in whole.items()}
        extras = {"time": time, "monte_carlo": part["to_end"]}
        yes = jnp.ones(shape, bool)
        given = (part["obs"], part["action"], part["reward"], jnp.ones(shape), part["obs"])
        return dt.learn(state, Record(*given, ~yes, yes, extras), key)[0], None

    trained = jax.jit(lambda s: jax.lax.scan(update, s, jax.random.split(KEY, 600))[0])(state)
    yes = jnp.ones(1, bool)
    for target, expected in ((2.0, [1, 1]), (0.0, [0, 0])):
        asked = dataclasses.replace(trained, target=jnp.asarray(target / 2.0))
        past, found = begun(asked, 1), []
        for _ in range(2):
            action, memory, _ = dt.recall(asked, past, jnp.zeros((1, OBS)), KEY, False)
            found.append(int(action[0]))
            past = Past(memory, action, action.astype(jnp.float32), jnp.ones(1), ~yes)
        assert found == expected
