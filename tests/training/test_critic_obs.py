"""Critics that see more than policies, on request: --critic-obs and --obs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling.envs.probes.unseen_probe import HiddenProbe
from sterling.nets.encoding.unseen_features import without_unseen_features
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.problem.critic_only_obs import with_critic_obs
from sterling.types import Mistake, Spec

SMALL = {"evaluate_episodes": 4, "preset": False, "seeds": 1, "envs": 4}
FIRST = {"length": 8, "minibatch": 32, "width": 8}
PICTURE = spaces.Box(0, 255, (36, 36, 3), np.uint8)


class Pushed:
    """A continuous task of one step: the reward is the wind's, less the action's error."""

    obs = spaces.Dict(
        {"policy": spaces.Box(-1, 1, (2,), np.float32), "wind": spaces.Box(-1, 1, (1,), np.float32)}
    )
    action = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, key):
        wind = jax.random.choice(key, jnp.asarray([-1.0, 1.0]), (1,))
        return wind, self.seen(wind)

    def seen(self, wind):
        return {"policy": jnp.zeros(2), "wind": wind}

    def step(self, wind, action, key):
        reward = 2.0 * wind[0] - jnp.square(action[0] - 0.5)
        return wind, self.seen(wind), reward, jnp.ones((), bool), jnp.zeros((), bool)


def values(run, obs):
    return jax.vmap(lambda state: run.agent.algorithm.value(state, obs))(run.agent.state)


@pytest.mark.slow
def test_ppo_critic_learns_values_from_critic_only_observations():
    run = sterling.train(
        "ppo", "probe:hidden", steps=20_000, critic_obs="state", **SMALL, **FIRST, epochs=4,
        lr=5e-3, gamma=0.8, normalise_reward=False, normalise_obs=False,
    )  # fmt: skip
    obs, right = HiddenProbe().solution()
    np.testing.assert_allclose(values(run, jax.tree.map(jnp.asarray, obs))[0], right, atol=0.25)
    assert run.player()({"observation": np.zeros(1, np.float32)}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sac", "td3"])
def test_off_policy_critics_learn_from_critic_only_observations(name):
    fields = {"warmup": 256, "capacity": 4_096, "batch": 64, "width": 32, "lr": 3e-3, "gamma": 0.5}
    own = {"tune_alpha": False, "alpha": 0.01} if name == "sac" else {}
    fields["learn"] = 2
    run = sterling.train(name, Pushed, steps=2_400, obs="policy", **SMALL, **fields, **own)
    wind = jnp.asarray([[-1.0], [1.0]])
    found = values(run, {"policy": jnp.zeros((2, 2)), "wind": wind})[0]
    assert found[0] < -1.0 < 1.0 < found[1]
    assert run.player()({"policy": np.zeros(2, np.float32)})[0] == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize("name", ["ppo", "sac", "td3"])
def test_policy_network_ignores_critic_only_observations(name):
    """Not even where learning computes it from whole observations."""
    fields = FIRST if name == "ppo" else {"warmup": 8, "capacity": 64, "batch": 8, "width": 8}
    run = sterling.train(name, Pushed, steps=64, critic_obs="wind", **SMALL, **fields)
    state = jax.tree.map(lambda x: x[0], run.agent.state)
    policy = {"ppo": lambda: state.nets.policy, "sac": lambda: state.actor.net}
    net = policy.get(name, lambda: state.nets.actor.net)()
    one, other = jnp.asarray([[0.3, 0.1, -1.0]]), jnp.asarray([[0.3, 0.1, 1.0]])
    np.testing.assert_array_equal(net(one), net(other))
    assert (np.asarray(net(one)) != np.asarray(net(one + 0.2))).any()


def test_critic_only_features_are_located_among_image_and_discrete_parts():
    inner = spaces.Dict({"d": spaces.Box(0, 1, (2,)), "e": spaces.Box(0, 1, (3,))})
    parts = {"a": PICTURE, "action_mask": spaces.MultiBinary(3), "b": spaces.Discrete(4)}
    space = spaces.Dict({**parts, "c": inner})
    spec = Spec(space, spaces.Discrete(3), unseen=("a", "c"), critic_sees=True)
    encoder = Encoder.create(jax.random.key(0), space)
    net = without_unseen_features(
        MLP.orthogonal(jax.random.key(1), (encoder.size, 3)), encoder, spec
    )
    picture = encoder.parts[0].size
    assert net.reads == (*[False] * picture, *[True] * 4, *[False] * 5)


@pytest.mark.slow
def test_critic_obs_run_resumes_loads_and_evaluates(tmp_path):
    more = {"critic_obs": "wind", **SMALL, **FIRST, "seeds": 2}
    half = sterling.train("ppo", Pushed, steps=64, out=tmp_path / "run", **more)
    assert half.settings.to_json()["critic_obs"] == "wind"
    again = sterling.load(tmp_path / "run", environment=Pushed)
    assert again.agent.algorithm == half.agent.algorithm
    assert again.evaluate(4) == half.evaluate(4)
    longer = sterling.resume(tmp_path / "run", steps=128, environment=Pushed)
    assert longer.result["steps"] == 128


def test_critic_obs_option_equals_the_complementary_obs_option():
    given = Spec(Pushed.obs, Pushed.action)
    one, other = with_critic_obs(given, "wind", ""), with_critic_obs(given, "", "policy")
    assert one == other
    assert one.unseen == ("wind",)
    assert with_critic_obs(given, "", "") is given


@pytest.mark.parametrize(
    ("algorithm", "environment", "options", "said"),
    [
        ("ppo", Pushed, {"critic_obs": "winds"}, "'winds' is not an entry of the observation"),
        ("ppo", Pushed, {"obs": "winds"}, "obs='winds' is not an entry.* It has policy, wind"),
        ("ppo", Pushed, {"critic_obs": "wind,policy"}, "leaves policies no entry"),
        ("ppo", Pushed, {"critic_obs": "wind", "obs": "policy"}, "Give one of them"),
        ("ppo", "CartPole-v1", {"critic_obs": "state"}, "It has none, because it is not a Dict"),
        ("dqn", "probe:hidden", {"critic_obs": "state"}, "dqn cannot learn with entries"),
    ],
)
def test_impossible_critic_obs_options_are_refused(algorithm, environment, options, said):
    with pytest.raises(Mistake, match=said):
        sterling.train(algorithm, environment, steps=2_048, **options)
