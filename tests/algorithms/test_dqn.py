"""DQN's equations, switches and limits."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import rlax
from gymnasium import spaces

import sterling
from sterling.algorithms.online import dqn
from sterling.envs.probes.probe_worlds import make_probe
from sterling.types import Mistake, Record, Spec, Transitions

VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)
SMALL = {"width": 16, "batch": 8}


def agent(obs=VECTOR, iterations=10, **fields):
    config = dqn.Config(**{**SMALL, **fields})
    spec = Spec(obs, spaces.Discrete(4), envs=2, iterations=iterations)
    return dqn.init(jax.random.key(0), spec, config)


def transitions(rows=8, obs=None, extras=None):
    rng = np.random.default_rng(1)

    def look():
        return jnp.asarray(rng.normal(size=(rows, 3)), jnp.float32)

    return Record(
        obs=look() if obs is None else obs,
        action=jnp.asarray(rng.integers(4, size=rows), jnp.int32),
        reward=jnp.asarray(rng.normal(size=rows) * 2, jnp.float32),
        discount=jnp.asarray(rng.random(rows) < 0.7, jnp.float32),
        next_obs=look() if obs is None else obs[::-1],
        last=jnp.zeros(rows, bool),
        mask=jnp.ones(rows, bool),
        extras=extras or {},
    )


def vars_of(record):
    return {name: getattr(record, name) for name in Record.__dataclass_fields__}


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("dueling", [False, True])
def test_errors_and_loss_equal_rlax(double, dueling):
    state, other = agent(double=double, dueling=dueling), agent(dueling=dueling)
    other = jax.tree.map(
        lambda x: x + 0.3 * jnp.cos(jnp.arange(x.size).reshape(x.shape)), other.net
    )
    batch = transitions()
    loss, (_, error) = dqn.loss(state.net, other, batch, state.config)
    rows = (state.net(batch.obs), batch.action, batch.reward, 0.99 * batch.discount)
    if double:
        online = state.net(batch.next_obs)
        expected = jax.vmap(rlax.double_q_learning)(*rows, other(batch.next_obs), online)
    else:
        expected = jax.vmap(rlax.q_learning)(*rows, other(batch.next_obs))
    np.testing.assert_allclose(error, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(loss, optax.losses.huber_loss(expected).mean(), rtol=1e-4)


def test_dqn_loss_passes_no_gradient_to_the_target_network():
    state, batch = agent(double=True), transitions()
    grads = jax.grad(lambda net: dqn.loss(state.net, net, batch, state.config)[0])(state.target)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(grads))


def test_dqn_loss_applies_sample_weights_and_masks():
    state = agent()
    batch = transitions(extras={"weight": jnp.asarray([1.0, 0, 0, 0, 0, 0, 0, 2.0])})
    loss, (_, error) = dqn.loss(state.net, state.target, batch, state.config)
    each = optax.losses.huber_loss(error)
    np.testing.assert_allclose(loss, (each[0] + 2 * each[7]) / 8, rtol=1e-5)
    mask = jnp.arange(8) < 3
    masked = Record(**{**vars_of(transitions()), "mask": mask})
    loss, (_, error) = dqn.loss(state.net, state.target, masked, state.config)
    np.testing.assert_allclose(loss, optax.losses.huber_loss(error)[:3].mean(), rtol=1e-5)


def test_dqn_target_network_is_copied_every_period_or_follows_by_tau():
    copied = agent(target_period=3, lr=0.1)
    first, batch = copied.net, transitions()
    learn = jax.jit(dqn.learn)
    for update in range(1, 7):
        before = copied.target
        copied, _ = learn(copied, batch, jax.random.key(update))
        expected = copied.net if update % 3 == 0 else before
        jax.tree.map(np.testing.assert_array_equal, copied.target, expected)
    following = agent(target_period=1, tau=0.1, lr=0.1)
    following, _ = learn(following, batch, jax.random.key(1))
    jax.tree.map(
        lambda t, old, new: np.testing.assert_allclose(t, 0.9 * old + 0.1 * new, atol=1e-6),
        following.target,
        first,
        following.net,
    )


def test_dqn_signals_hold_the_td_error_of_every_row():
    state, signals = jax.jit(dqn.learn)(agent(), transitions(), jax.random.key(0))
    _, (_, error) = dqn.loss(agent().net, agent().target, transitions(), agent().config)
    np.testing.assert_allclose(signals.samples["td_error"], error, rtol=1e-4, atol=1e-5)
    assert int(state.updates) == 1


def test_dqn_target_network_still_updates_past_two_to_the_24_updates():
    """Whole numbers as floats end at 2^24: a target that waits for the next one is frozen."""
    state, batch = agent(target_period=1, lr=0.1), transitions()
    late = jnp.full_like(state.updates, 2**24)
    state = dqn.State(**{**state.__dict__, "updates": late})
    state, _ = jax.jit(dqn.learn)(state, batch, jax.random.key(1))
    assert int(state.updates) == 2**24 + 1
    every_other = agent(target_period=2, lr=0.1)
    every_other = dqn.State(**{**every_other.__dict__, "updates": late + 1})
    learned, _ = jax.jit(dqn.learn)(every_other, batch, jax.random.key(1))
    jax.tree.map(np.testing.assert_array_equal, learned.target, learned.net)


def test_epsilon_falls_linearly_over_the_planned_share():
    state = agent(iterations=100, learn=2, exploration_fraction=0.5, exploration_final=0.2)
    for updates, expected in ((0, 1.0), (50, 0.6), (100, 0.2), (150, 0.2)):
        now = dqn.State(**{**state.__dict__, "updates": jnp.asarray(updates)})
        np.testing.assert_allclose(dqn.epsilon(now), expected, rtol=1e-5)


@pytest.mark.slow
def test_dqn_exploration_is_epsilon_greedy():
    state = agent(exploration_initial=0.4)
    obs = jnp.broadcast_to(jnp.asarray([[0.3, -1.0, 2.0]]), (4000, 3))
    greedy, _ = dqn.act(state, obs, jax.random.key(0), False)
    assert np.unique(greedy).tolist() == [int(state.net(obs)[0].argmax())]
    np.testing.assert_allclose(dqn.value(state, obs), state.net(obs).max(-1))
    action, extras = dqn.act(state, obs, jax.random.key(1), True)
    share = np.bincount(action, minlength=4) / 4000
    expected = np.full(4, 0.1)
    expected[int(greedy[0])] += 0.6
    np.testing.assert_allclose(share, expected, atol=0.03)
    assert extras == {}


def test_dqn_masked_actions_are_neither_taken_nor_bootstrapped_from():
    space = spaces.Dict({"obs": VECTOR, "action_mask": spaces.MultiBinary(4)})
    state = agent(space, exploration_initial=0.5, double=True)
    mask = jnp.broadcast_to(jnp.asarray([[0, 1, 0, 1]], jnp.int8), (500, 4))
    obs = {"obs": jax.random.normal(jax.random.key(3), (500, 3)), "action_mask": mask}
    for explore in (True, False):
        action, _ = dqn.act(state, obs, jax.random.key(1), explore)
        assert set(np.unique(action)) <= {1, 3}
    q = state.net(obs)
    np.testing.assert_allclose(dqn.value(state, obs), jnp.maximum(q[:, 1], q[:, 3]))
    batch = transitions(500, obs=obs["obs"])
    batch = Record(**{**vars_of(batch), "obs": obs, "next_obs": obs})
    _, (_, error) = dqn.loss(state.net, state.target, batch, state.config)
    taken = jnp.take_along_axis(q, batch.action[:, None], 1)[:, 0]
    expected = batch.reward + 0.99 * batch.discount * jnp.maximum(q[:, 1], q[:, 3]) - taken
    np.testing.assert_allclose(error, expected, rtol=1e-4, atol=1e-4)


def test_dqn_all_zero_action_mask_allows_every_action():
    """At a cut some worlds allow nothing; its value is that of the best action all the same."""
    space = spaces.Dict({"obs": VECTOR, "action_mask": spaces.MultiBinary(4)})
    for double in (False, True):
        state = agent(space, double=double)
        obs = {"obs": jnp.ones((8, 3)), "action_mask": jnp.zeros((8, 4), jnp.int8)}
        batch = Record(**{**vars_of(transitions()), "obs": obs, "next_obs": obs})
        _, (_, error) = dqn.loss(state.net, state.target, batch, state.config)
        q = state.net(obs)
        taken = jnp.take_along_axis(q, batch.action[:, None], 1)[:, 0]
        expected = batch.reward + 0.99 * batch.discount * q.max(-1) - taken
        np.testing.assert_allclose(error, expected, rtol=1e-4, atol=1e-4)


def test_dqn_trains_convolutional_encoder_on_pictures():
    state = agent(spaces.Box(0, 255, (4, 36, 36), np.uint8), dueling=True, width=8)
    obs = jax.random.randint(jax.random.key(0), (8, 4, 36, 36), 0, 256).astype(jnp.uint8)
    learned, _ = jax.jit(dqn.learn)(state, transitions(obs=obs), jax.random.key(1))
    kernels = [s.net.torso.parts[0].layers[0].weight for s in (state, learned)]
    assert not np.array_equal(*kernels)


def test_dqn_needs_follow_the_replay_settings():
    plain = dqn.needs(dqn.Config(batch=7, collect=3, learn=2, capacity=99, warmup=5))
    assert plain == Transitions(7, 3, 2, 99, 5)
    every = dqn.needs(dqn.Config(n_step=3, gamma=0.9, priority=0.6, correction=0.5))
    assert (every.n_step, every.gamma, every.priority, every.correction) == (3, 0.9, 0.6, 0.5)


BBF = {"n_step": 10, "n_step_final": 3, "gamma_initial": 0.97, "gamma": 0.997}


def test_dqn_horizon_schedule_of_n_step_and_gamma_follows_bbf():
    """Its exponential schedules, of n and of 1 - gamma."""
    state = agent(**BBF, horizon_updates=100)
    assert dqn.needs(state.config).n_step == 10
    for done in (0, 1, 17, 50, 99, 100, 5_000):
        p = min(done / 100, 1.0)
        n, gamma = dqn.n_step_now(dataclasses.replace(state, updates=jnp.int32(done)))
        assert int(n) == round(float(np.exp((1 - p) * np.log(10) + p * np.log(3))))
        far = np.exp((1 - p) * np.log(0.03) + p * np.log(0.003))
        np.testing.assert_allclose(gamma, 1 - far, rtol=1e-6)


def test_dqn_n_step_and_gamma_schedules_work_separately():
    at = {"updates": jnp.int32(50)}
    longer = dataclasses.replace(agent(n_step=2, n_step_final=8, horizon_updates=100), **at)
    n, gamma = dqn.n_step_now(longer)
    assert (int(n), float(gamma)) == (4, pytest.approx(0.99))
    assert dqn.needs(longer.config).n_step == 8
    further = dataclasses.replace(agent(n_step=3, gamma_initial=0.9, horizon_updates=100), **at)
    n, gamma = dqn.n_step_now(further)
    assert (int(n), float(gamma)) == (3, pytest.approx(1 - np.sqrt(0.1 * 0.01)))
    assert dqn.n_step_now(agent(n_step=3)) is None


def test_dqn_learns_with_the_current_scheduled_gamma():
    state = agent(gamma=0.9, gamma_initial=0.5)
    learned, signals = dqn.learn(state, transitions(), jax.random.key(0))
    wanted, told = dqn.learn(agent(gamma=0.5), transitions(), jax.random.key(0))
    np.testing.assert_allclose(signals.metrics["value/gamma"], 0.5)
    np.testing.assert_allclose(signals.samples["td_error"], told.samples["td_error"], rtol=1e-6)
    for x, y in zip(jax.tree.leaves(learned.net), jax.tree.leaves(wanted.net), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)
    assert float(learned.config.gamma) == pytest.approx(0.9)


@pytest.mark.slow
def test_dqn_with_scheduled_horizon_reaches_values_of_the_final_gamma():
    gamma = 0.8
    run = sterling.train(
        "dqn",
        "probe:both",
        steps=10_000,
        envs=8,
        evaluate_episodes=0,
        preset=False,
        **{"gamma": gamma, "lr": 3e-3, "batch": 64, "collect": 1, "width": 32, "capacity": 4_000},
        **{"warmup": 400, "target_period": 25, "exploration_fraction": 0.5, "double": True},
        **{"n_step": 4, "n_step_final": 1, "gamma_initial": 0.5, "horizon_updates": 300},
    )
    answer = make_probe("both").solution(gamma)
    found = jax.vmap(lambda state: dqn.value(state, jnp.asarray(answer.obs)))(run.agent.state)
    np.testing.assert_allclose(found[0], answer.value, atol=0.1)


@pytest.mark.parametrize(
    ("space", "remedy"),
    [
        (
            spaces.Box(-1.0, 1.0, (2,)),
            r"dqn does not support Box\(.*\) actions. Use sac, td3 or ppo",
        ),
    ],
)
def test_other_action_spaces_are_a_mistake(space, remedy):
    with pytest.raises(Mistake, match=remedy):
        dqn.init(jax.random.key(0), Spec(VECTOR, space), dqn.Config())


@pytest.mark.slow
def test_dqn_with_every_option_solves_a_probe_environment():
    """Values and actions both matter there, and rewards come late."""
    gamma = 0.8
    run = sterling.train(
        "dqn",
        "probe:both",
        steps=10_000,
        envs=8,
        evaluate_episodes=0,
        preset=False,
        **{"gamma": gamma, "lr": 3e-3, "batch": 64, "collect": 1, "width": 32, "capacity": 4_000},
        **{"warmup": 400, "target_period": 25, "exploration_fraction": 0.5, "anneal": True},
        **{"double": True, "dueling": True, "n_step": 3, "priority": 0.6},
    )
    answer = make_probe("both").solution(gamma)
    found = jax.vmap(lambda state: dqn.value(state, jnp.asarray(answer.obs)))(run.agent.state)
    np.testing.assert_allclose(found[0], answer.value, atol=0.1)
    action = [run.policy(row, 0) for row in answer.obs]
    np.testing.assert_array_equal(np.asarray(action).ravel(), np.asarray(answer.action).ravel())
