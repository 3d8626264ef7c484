"""Trained agents judged without a world: their probabilities, and continuous actions."""

import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling import random_keys
from sterling.algorithms.online import dqn, ppo, sac, td3
from sterling.data import Dataset
from sterling.data.episode_columns import Block
from sterling.envs.probes.probe_worlds import make_probe
from sterling.evaluation import (
    TrainedPolicy,
    behaviour,
    clone_behaviour,
    deterministic,
    estimate_policy_value,
)
from sterling.evaluation.off_policy.policy_probabilities import action_log_probs
from sterling.nets.action_heads import Actions
from sterling.training.agent import Agent
from sterling.types import Mistake, Spec

BOX = Spec(spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Box(-1.0, 1.0, (2, 2), np.float32))
CHOICE = Spec(spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Discrete(4))
SMALL = {"ppo": {"minibatch": 64}, "sac": {}, "dqn": {}, "td3": {}}
MODULES = {"ppo": ppo, "sac": sac, "dqn": dqn, "td3": td3}


def agent(name, spec, sampled=True):
    module = MODULES[name]
    init = jax.jit(lambda key: module.init(key, spec, module.Config(**SMALL[name])))
    state = init(jax.random.key(0))
    seeds = jax.tree.map(lambda x: jnp.stack([jnp.zeros_like(x), x]), state)  # the second's agent
    run = types.SimpleNamespace(
        settings=types.SimpleNamespace(seeds=(3, 7)),
        agent=Agent(seeds, module, None, "map"),
    )
    return TrainedPolicy.from_run(run, spec, 7, sampled)


def obs(rows):
    return jax.random.uniform(jax.random.key(1), (rows, 3), minval=-1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "sac", "dqn"])
def test_policy_probabilities_equal_action_frequencies(name):
    policy, rows = agent(name, CHOICE), 4000
    here = jnp.broadcast_to(obs(1), (rows, 3))
    chances = np.exp(np.asarray(action_log_probs(policy, here, 4)))
    np.testing.assert_allclose(chances.sum(-1), 1.0, rtol=1e-5)
    drawn = np.bincount(np.asarray(policy.sample(here, jax.random.key(2))), minlength=4) / rows
    np.testing.assert_allclose(drawn, chances[0], atol=0.04)
    assert (chances[0].max() == 1.0) == (name == "dqn")


@pytest.mark.parametrize("name", [pytest.param("ppo", marks=pytest.mark.slow), "sac"])
def test_policy_densities_of_continuous_actions_integrate_to_one(name):
    """Importance: uniform actions weighted by the density; Normals also lie outside [-1, 1]."""
    policy = agent(name, BOX)
    rows, width = 200_000, 1.0 if name == "sac" else 5.0
    here = jnp.broadcast_to(obs(1), (rows, 3))
    action = jax.random.uniform(jax.random.key(0), (rows, 2, 2), minval=-width, maxval=width)
    log_p = np.asarray(jax.jit(TrainedPolicy.log_prob)(policy, here, action), np.float64)
    assert np.exp(log_p).mean() * (2 * width) ** 4 == pytest.approx(1.0, abs=0.1)


def test_ppo_log_prob_equals_the_recorded_one():
    module = ppo
    init = jax.jit(lambda key: module.init(key, BOX, module.Config(minibatch=64)))
    state = init(jax.random.key(0))
    action, extras = module.act(state, obs(50), jax.random.key(3), True)
    assert action.shape == (50, 2, 2)
    np.testing.assert_allclose(
        module.log_prob(state, obs(50), action), extras["log_prob"], rtol=1e-5
    )


def test_deterministic_policy_has_probability_one_at_its_mode():
    policy = agent("ppo", CHOICE, sampled=False)
    chances = np.exp(np.asarray(action_log_probs(policy, obs(20), 4)))
    np.testing.assert_array_equal(chances.max(-1), 1.0)
    np.testing.assert_array_equal(chances.argmax(-1), policy.sample(obs(20), jax.random.key(0)))


def test_action_heads_flat_and_shaped_actions_are_inverse():
    actions = Actions.from_space(BOX.action)
    action = jnp.arange(24.0).reshape(3, 2, 2, 2)
    assert actions.flat(action).shape == (3, 2, 4)
    np.testing.assert_array_equal(actions.shaped(actions.flat(action)), action)
    choice = jnp.arange(3, dtype=jnp.int32)
    assert Actions.from_space(CHOICE.action).flat(choice) is choice


def lived(name, behave, count, seed=0):
    """A log of a probe world; ``behave(obs, key) -> action, log_prob``."""
    task = make_probe(name)

    def one(key):
        start, go = jax.random.split(key)
        state, seen = task.reset(start)
        rows = []
        for time in range(2):
            act, world = jax.random.split(random_keys.fold(go, "step", time))
            action, log_prob = behave(seen[None], act)
            state, after, reward, ended, _ = task.step(state, action[0], world)
            rows.append((seen, action[0], reward, ended, log_prob[0], after))
            seen = after
        return [jnp.stack(part) for part in zip(*rows, strict=True)]

    parts = jax.vmap(one)(jax.random.split(jax.random.key(seed), count))
    seen, action, reward, ended, log_prob, after = (np.asarray(part) for part in parts)
    steps = 1 if ended[:, 0].all() else 2
    arrays = {
        "obs": np.concatenate([seen[:, :steps], after[:, steps - 1 : steps]], 1).reshape(-1, 1),
        "action": action[:, :steps].reshape(count * steps, *action.shape[2:]),
        "reward": reward[:, :steps].reshape(-1).astype(np.float32),
        "discount": 1.0 - ended[:, :steps].reshape(-1).astype(np.float32),
        "extra/log_prob": log_prob[:, :steps].reshape(-1),
    }
    lengths = np.full(count, steps)
    block = Block(arrays, lengths, np.zeros(count, np.int32))
    return Dataset.from_block(block, task.obs, task.action)


def gaussian(middle):
    def behave(seen, key):
        noise = 0.3 * jax.random.normal(key, (1, 1))
        action = jnp.clip(middle + noise, -1.0, 1.0)
        log_prob = -0.5 * jnp.square(noise / 0.3) - jnp.log(0.3 * jnp.sqrt(2 * jnp.pi))
        return action, log_prob[:, 0]

    return behave


class Around(eqx.Module):
    """A normal of deviation 0.3 around a number."""

    middle: jax.Array

    @property
    def has_log_prob(self):
        return True

    def sample(self, seen, key):
        return self.middle + 0.3 * jax.random.normal(key, (seen.shape[0], 1))

    def log_prob(self, seen, action):
        scaled = (action[:, 0] - self.middle) / 0.3
        return -0.5 * jnp.square(scaled) - jnp.log(0.3 * jnp.sqrt(2 * jnp.pi))


class Feedback(eqx.Module):
    """A normal of deviation ``noise`` around ``gain`` times the state."""

    gain: jax.Array
    noise: jax.Array

    @property
    def has_log_prob(self):
        return False

    def sample(self, seen, key):
        return self.gain * seen + self.noise * jax.random.normal(key, seen.shape)

    def log_prob(self, seen, action):
        raise NotImplementedError  # fitted Q must not ask


def regulated(gain, noise, episodes, steps, seed):
    """A log of x' = 0.9 x + 0.4 a + 0.1 e with reward -x^2, never ended, from x ~ N(0, 1)."""
    random = np.random.default_rng(seed)
    x = random.normal(size=episodes)
    seen, actions = [x], []
    for _ in range(steps):
        actions.append(gain * x + noise * random.normal(size=episodes))
        x = 0.9 * x + 0.4 * actions[-1] + 0.1 * random.normal(size=episodes)
        seen.append(x)
    obs, action = np.stack(seen, 1), np.stack(actions, 1)
    arrays = {
        "obs": obs.reshape(-1, 1).astype(np.float32),
        "action": action.reshape(-1, 1).astype(np.float32),
        "reward": -np.square(obs[:, :-1]).ravel().astype(np.float32),
        "discount": np.ones(episodes * steps, np.float32),
    }
    box = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    block = Block(arrays, np.full(episodes, steps), np.zeros(episodes, np.int32))
    return Dataset.from_block(block, box, box)


@pytest.mark.slow
def test_fitted_q_of_a_controller_gives_no_interval_before_convergence():
    """V(x) = -(p x^2 + q), p = 1 / (1 - g c^2), q = g p s^2 / (1 - g) under x' = c x + s e."""
    gamma, c = 0.9, 0.9 + 0.4 * 0.2
    p = 1 / (1 - gamma * c**2)
    truth = -(p + gamma * p * (0.01 + (0.4 * 0.1) ** 2) / (1 - gamma))
    policy = Feedback(jnp.asarray(0.2), jnp.asarray(0.1))
    data = regulated(-0.3, 0.8, 100, 20, 0)
    fields = {"gamma": gamma, "width": 32, "lr": 3e-3}
    few, enough = (
        estimate_policy_value(policy, data, "fqe", updates=n, **fields) for n in (60, 3000)
    )
    assert few.value > truth + 2.0
    assert few.low is None
    assert "not converged after 60 updates" in few.method
    assert enough.value == pytest.approx(truth, abs=1.5)
    assert enough.low < truth < enough.high


SLOW = [pytest.param(method, marks=pytest.mark.slow) for method in ("fqe", "model", "dr", "wdr")]


@pytest.mark.parametrize("method", ["wpdis", *SLOW])
def test_off_policy_estimates_support_continuous_actions(method):
    """Reward 1 - (a - 1/2)^2 in one step: of a normal around 0.3, 1 - 0.3^2 - 0.2^2."""
    data = lived("action-continuous", gaussian(0.0), 600)
    fields = {"updates": 600, "width": 16, "lr": 3e-3, "members": 3}
    policy = Around(jnp.asarray(0.3))
    found = estimate_policy_value(policy, data, method, **{} if method == "wpdis" else fields)
    assert found.value == pytest.approx(1 - 0.09 - 0.04, abs=0.06)
    assert found.low < found.value < found.high


def test_deterministic_continuous_policy_needs_fitted_q_evaluation():
    data = lived("action-continuous", gaussian(0.0), 20)
    module = td3
    spec = data.spec
    state = jax.jit(lambda key: module.init(key, spec, module.Config()))(jax.random.key(0))
    policy = TrainedPolicy(state, module, Actions.from_space(spec.action), False)
    for method in ("is", "dr"):
        with pytest.raises(Mistake, match="use fqe"):
            estimate_policy_value(policy, data, method)
    fields = {"updates": 50, "width": 16}
    assert np.isfinite(estimate_policy_value(policy, data, "fqe", **fields).value)


@pytest.mark.slow
def test_behaviour_clone_of_a_normal_policy_is_that_normal():
    data = lived("action-continuous", gaussian(0.2), 800)
    found = clone_behaviour(data, updates=800, width=16, lr=3e-3)
    seen = jnp.zeros((2000, 1))
    action = np.asarray(found.sample(seen, jax.random.key(0)))
    assert action.mean() == pytest.approx(0.2, abs=0.06)
    assert action.std() == pytest.approx(0.3, abs=0.05)
    still = deterministic(found)
    assert np.ptp(np.asarray(still.sample(seen, jax.random.key(0)))) == 0.0
    assert not still.has_log_prob


def test_fitted_q_values_stay_within_the_reward_bounds():
    """A policy that only does what nobody logged, judged by wild networks: no running away."""
    data = lived("delay-continuous", gaussian(-0.5), 100)
    fields = {"updates": 300, "width": 32, "lr": 0.1, "tau": 1.0}
    found = estimate_policy_value(Around(jnp.asarray(30.0)), data, "fqe", gamma=0.9, **fields)
    assert 0.0 <= found.value <= 10.0 + 1e-3


@pytest.mark.slow
def test_off_policy_estimates_discount_later_rewards():
    """0, then 1 in the second step."""
    data = lived("delay-continuous", gaussian(0.0), 100)
    policy = Around(jnp.asarray(0.0))
    fields = {"updates": 800, "width": 16, "lr": 3e-3, "tau": 0.1}
    for method in ("wpdis", "fqe", "model"):
        given = {} if method == "wpdis" else {k: fields[k] for k in fields if k != "tau"}
        if method == "fqe":
            given = fields
        assert estimate_policy_value(
            policy, data, method, gamma=0.5, **given
        ).value == pytest.approx(0.5, abs=0.08)
    assert behaviour(data, gamma=0.5).value == pytest.approx(0.5)
