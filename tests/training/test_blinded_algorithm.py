"""What only critics see: worlds answer with it, and no policy is given it, wherever it acts."""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array
from gymnasium import spaces

import sterling
from sterling import algorithms, envs, random_keys
from sterling.algorithms.online import ppo
from sterling.data import Dataset
from sterling.data_generation.dataset_order import DatasetOrder
from sterling.data_generation.make_dataset import make_dataset
from sterling.envs.probes.unseen_probe import HiddenProbe
from sterling.experience.rollouts.rollout import Rollout
from sterling.problem.critic_only_obs import check_unseen, spec_without_unseen
from sterling.training.agent import Agent
from sterling.training.blinded_algorithm import BlindedAlgorithm
from sterling.types import Log, Mistake, Record, Spec

SEED = constant_array([0], np.int32)
SMALL = {"evaluate_episodes": 4, "preset": False, "seeds": 1, "envs": 4}
FIRST = {"length": 8, "minibatch": 32, "width": 8}
BOX = spaces.Box(-1.0, 1.0, (1,), np.float32)
DICT = spaces.Dict({"observation": BOX, "state": BOX, "alive": spaces.MultiBinary(2)})


class Told:
    """An algorithm that keeps what it is called with."""

    Config = ppo.Config
    constant = 3

    def __init__(self):
        self.calls = {}

    def _keep(self, name, *given, **more):
        self.calls[name] = given
        return given

    def needs(self, config):
        return ppo.needs(config)

    def init(self, key, spec, config):
        return self._keep("init", spec)

    def act(self, state, obs, key, explore):
        return self._keep("act", state, obs, explore)

    def learn_more(self, state, batch, key):
        return self._keep("learn_more", batch)

    def value(self, state, past, obs, key):
        return self._keep("value", obs)


def seen(lead):
    return {"observation": jnp.zeros((*lead, 1)), "state": jnp.ones((*lead, 1))}


def batch():
    none = jnp.zeros(3)
    return Record(seen((3,)), none, none, none, seen((3,)), none > 0, none > 0)


def spec(unseen=("state",)):
    log = Log(seen(()), seen(()), (0.0, 1.0), (0.0, 1.0), 3)
    obs = spaces.Dict({"observation": BOX, "state": BOX})
    return Spec(obs, spaces.Discrete(2), 1, 10, log, unseen=unseen)


def test_blinded_algorithm_never_receives_critic_only_observations():
    inner = Told()
    blind = BlindedAlgorithm(inner, ("state",))
    blind.init(None, spec(), None)
    (told,) = inner.calls["init"]
    assert set(told.obs.spaces) == {"observation"}
    assert set(told.log.obs_mean) == set(told.log.obs_std) == {"observation"}
    assert told.unseen == ()
    own = {"state": 1, "observation": 2}  # the algorithm's own state may be called anything
    state, obs, explore = blind.act(own, seen((3,)), None, explore=True)
    assert (state, set(obs), explore) == (own, {"observation"}, True)
    (rows,) = blind.learn_more(None, batch(), None)
    assert set(rows.obs) == set(rows.next_obs) == {"observation"}
    assert set(blind.value(None, None, seen((3,)), None)[0]) == {"observation"}
    assert blind.constant == 3
    assert not hasattr(blind, "memory")
    assert blind == BlindedAlgorithm(inner, ("state",))


def test_algorithm_using_unseen_gets_critic_only_obs_except_when_acting():
    inner = Told()
    inner.uses_unseen = True
    blind = BlindedAlgorithm(inner, ("state",))
    assert blind.init(None, spec(), None)[0].unseen == ("state",)
    assert set(blind.act(None, seen((3,)), None, explore=False)[1]) == {"observation"}
    assert set(blind.learn_more(None, batch(), None)[0].obs) == {"observation", "state"}
    assert set(blind.value(None, None, seen((3,)), None)[0]) == {"observation", "state"}


def test_algorithm_is_not_wrapped_without_critic_only_observations():
    given = spec(unseen=())
    assert spec_without_unseen(given) is given
    made = Agent.create(
        ppo, random_keys.for_seeds(SEED, "agent", 0), _small(given), ppo.Config(), "map"
    )
    assert made.algorithm is ppo


def _small(given):
    return dataclasses.replace(given, envs=256, log=None)


@pytest.mark.parametrize(
    ("names", "space", "said"),
    [
        ("state", DICT, r"unseen='state' is not a tuple of names.* unseen=\('state',\)"),
        (
            ("stat",),
            DICT,
            "'stat' is not an entry of the observation. It has alive, observation, state",
        ),
        (("state",), BOX, "It has none, because it is not a Dict"),
        (("alive",), DICT, "unseen='alive': policies need this entry"),
        (("state", "observation"), DICT, "leaves policies no entry to observe"),
    ],
)
def test_invalid_critic_only_observation_names_are_refused(names, space, said):
    with pytest.raises(Mistake, match=said):
        check_unseen(names, space)


def test_task_and_gymnasium_env_declare_critic_only_observations_alike():
    for made in (HiddenProbe, Bits):
        world = envs.make(made, (0,), 2, **({"workers": 0} if made is Bits else {}))
        assert world.spec.unseen == ("state",)
        _, obs = world.reset(random_keys.for_seeds(SEED, "test", 0))
        assert set(obs) == {"observation", "state"}
        world.close()

    class Wrong(HiddenProbe):
        unseen = ("stat",)

    with pytest.raises(Mistake, match="unseen='stat' is not an entry"):
        envs.make(Wrong, (0,), 1)
    with pytest.raises(Mistake, match="unseen='nothing' is not an entry"):
        envs.make(lambda: Bits(("nothing",)), (0,), 1, workers=0)
    hidden = "trials:2:probe:hidden"
    assert envs.make(hidden, (0,), 1).spec.unseen == ("state", "final_state")
    assert envs.make(hidden, (0,), 1, final=False).spec.unseen == ("state",)


class Bits(gymnasium.Env):
    """The same world as a Gymnasium environment."""

    observation_space = spaces.Dict({"observation": BOX, "state": BOX})
    action_space = spaces.Discrete(2)

    def __init__(self, unseen=("state",)):
        self.unseen = unseen

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = np.float32([self.np_random.choice([-1.0, 1.0])])
        return {"observation": np.zeros(1, np.float32), "state": self.state}, {}

    def step(self, action):
        obs = {"observation": np.zeros(1, np.float32), "state": self.state}
        return obs, float(self.state[0] + action), True, False, {}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        pytest.param("ppo", FIRST, marks=pytest.mark.slow),
        ("recurrent-ppo", FIRST),
        ("dqn", {"width": 8, "warmup": 64, "capacity": 256, "batch": 8}),
        ("openes", {"width": 8, "limit": 2}),
    ],
)
def test_all_experience_sources_hide_critic_only_observations(name, fields):
    """By rollouts, by memory, by a replay, by whole episodes: networks have one input less."""
    steps = 256 if name != "openes" else 64
    run = sterling.train(name, "probe:hidden", steps=steps, **SMALL, **fields)
    alone = dataclasses.replace(spec_without_unseen(run.world().spec), envs=4, iterations=8)
    assert set(alone.obs.spaces) == {"observation"}
    init, config = algorithms.find(name).init, run.settings.config
    made = jax.eval_shape(lambda key: init(key, alone, config), jax.random.key(0))
    shapes = [leaf.shape for leaf in jax.tree.leaves(made)]
    assert [leaf.shape[1:] for leaf in jax.tree.leaves(run.agent.state)] == shapes
    action = run.player()({"observation": np.zeros(1, np.float32)})
    told = run.player()({"observation": np.zeros(1, np.float32), "state": np.ones(1, np.float32)})
    assert action == told


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A run that has learned, and its folder."""
    path = tmp_path_factory.mktemp("learned") / "run"
    return sterling.train(
        "ppo", "probe:hidden", steps=20_000, **SMALL, **FIRST, epochs=4, lr=5e-3, gamma=0.8,
        normalise_reward=False, normalise_obs=False, out=path,
    ), path  # fmt: skip


def test_ppo_without_critic_obs_learns_the_mean_value_of_hidden_states(learned):
    """It learns what is right in both states; its value is the mean over them."""
    run, _ = learned
    obs = jax.tree.map(jnp.asarray, HiddenProbe().solution()[0])
    found = jax.vmap(lambda state: run.agent.algorithm.value(state, obs))(run.agent.state)
    np.testing.assert_allclose(found, [[1.0, 1.0]], atol=0.25)
    assert run.player()({"observation": np.zeros(1, np.float32)}) == 1


def test_rollout_records_critic_only_obs_but_acts_without_them():
    world = envs.make("probe:hidden", (0,), 16)
    given = dataclasses.replace(world.spec, envs=256)
    agent = Agent.create(ppo, random_keys.for_seeds(SEED, "agent", 0), given, ppo.Config(), "map")
    rollout = Rollout.create(world, 6, random_keys.for_seeds(SEED, "test", 0), agent)
    _, rows = rollout.live(agent, random_keys.for_seeds(SEED, "test", 1))
    assert set(np.unique(rows.obs["state"])) == {-1.0, 1.0}
    lived = np.asarray(rows.mask)
    worth = np.asarray(rows.obs["state"])[..., 0] + np.asarray(rows.action)
    np.testing.assert_array_equal(np.asarray(rows.reward)[lived], worth[lived])
    seen = Spec(spaces.Dict({"observation": BOX}), world.spec.action, 256)
    alone = Agent.create(ppo, random_keys.for_seeds(SEED, "agent", 0), seen, ppo.Config(), "map")
    for one, other in zip(jax.tree.leaves(agent.state), jax.tree.leaves(alone.state), strict=True):
        np.testing.assert_array_equal(one, other)


def test_dataset_holds_critic_only_obs_but_bc_does_not_read_them(tmp_path):
    order = DatasetOrder("probe:hidden", "random", 400)
    make_dataset(order, tmp_path / "log")
    assert Dataset(tmp_path / "log").obs_space["state"].shape == (1,)
    run = sterling.train(
        "bc", data=tmp_path / "log", updates=20, width=8, evaluate_episodes=2, preset=False,
        out=tmp_path / "run",
    )  # fmt: skip
    first = next(x for x in jax.tree.leaves(run.agent.state) if x.ndim == 3 and x.shape[-1] == 8)
    assert first.shape[1] == 1
    again = sterling.load(tmp_path / "run")
    alone = {"observation": np.zeros(1, np.float32)}
    assert again.player()(alone) == run.player()(alone)


def test_run_with_critic_only_observations_is_saved_and_loaded(learned):
    run, path = learned
    again = sterling.load(path)
    assert (
        again.agent.algorithm
        == run.agent.algorithm
        == BlindedAlgorithm(algorithms.find("ppo"), ("state",))
    )
    assert again.evaluate(8) == run.evaluate(8)
