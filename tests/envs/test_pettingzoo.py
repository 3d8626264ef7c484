"""PettingZoo's environments: agents in their order, who leaves, cuts, masks, different spaces. The
environments here are written out; one is the package's own."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling import envs, random_keys
from sterling.envs.hosted import pettingzoo_env
from sterling.envs.hosted.hosted_env import HostWorld
from sterling.types import Mistake


@functools.cache
def fixed_keys():
    return random_keys.for_seeds(jnp.zeros(1, jnp.int32), "test", 0)


class Counters:
    """Agents who see their number and are paid 10 ** number times what they do; in step ``leave``
    green ends, in step 4 all others do, or where ``cut`` they are cut."""

    def __init__(self, cut=False, leave=2, told=False, sizes=(4, 4, 4), longer=0):
        self.metadata = {"name": "counters"}
        self.possible_agents = ["red", "green", "blue"]
        self.agents = []
        self.cut, self.leave, self.told, self.sizes, self.longer = cut, leave, told, sizes, longer

    def observation_space(self, agent):
        size = 1 + self.longer * (agent == "blue")
        return spaces.Box(0.0, 9.0, (size,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(self.sizes[self.possible_agents.index(agent)])

    def _answer(self, agents):
        numbers = {agent: self.possible_agents.index(agent) for agent in agents}
        obs = {agent: np.full(self.observation_space(agent).shape, number + 1, np.float32)
               for agent, number in numbers.items()}  # fmt: skip
        infos = {agent: {} for agent in agents}
        for agent, number in numbers.items() if self.told else ():
            infos[agent] = {"action_mask": (np.arange(4) != number).astype(np.int8)}
        return dict(reversed(obs.items())), infos  # in another order than the agents'

    def reset(self, seed=None, options=None):
        self.agents, self.time = self.possible_agents[:], 0
        return self._answer(self.agents)

    def step(self, actions):
        assert set(actions) == set(self.agents)
        if self.told:
            assert all(a != self.possible_agents.index(agent) for agent, a in actions.items())
        self.time += 1
        worth = {agent: 10.0**number for number, agent in enumerate(self.possible_agents)}
        paid = {agent: worth[agent] * action for agent, action in actions.items()}
        over = self.time == 4
        ended = {agent: (over and not self.cut) or (agent == "green" and self.time == self.leave)
                 for agent in self.agents}  # fmt: skip
        cut = {agent: over and self.cut for agent in self.agents}
        obs, infos = self._answer(self.agents)
        self.agents = [agent for agent in self.agents if not (ended[agent] or cut[agent])]
        return obs, paid, ended, cut, infos

    def close(self):
        pass


def lived(factory, steps=6, action=(1, 2, 3)):
    """The steps of a world in this process."""
    world = HostWorld(factory, (0,), 1, workers=0)
    _, obs = world.reset(fixed_keys())
    answers = [world.step(None, np.array([[action]]), fixed_keys())[1] for _ in range(steps)]
    return world.spec, obs, answers


def test_pettingzoo_agents_stand_in_their_own_rows():
    spec, obs, answers = lived(Counters)
    assert spec.agents.names == ("red", "green", "blue")
    np.testing.assert_array_equal(obs["observation"][0, 0, :, 0], [1, 2, 3])
    np.testing.assert_array_equal(answers[0].channels["reward"][0, 0], [1, 20, 300])
    assert answers[0].reward.item() == 321.0


def test_pettingzoo_agent_that_leaves_stays_dead_until_the_next_episode():
    _, _, answers = lived(Counters)
    alive = [answer.obs["alive"][0, 0].tolist() for answer in answers]
    assert alive == [[1, 1, 1], [1, 0, 1], [1, 0, 1], [0, 0, 0], [1, 1, 1], [1, 1, 1]]
    np.testing.assert_array_equal(answers[2].channels["reward"][0, 0], [1, 0, 300])
    np.testing.assert_array_equal(answers[2].obs["observation"][0, 0, :, 0], [1, 0, 3])
    assert [bool(answer.last.item()) for answer in answers] == [0, 0, 0, 1, 0, 0]
    assert [answer.discount.item() for answer in answers[:4]] == [1, 1, 1, 0]
    assert [bool(answer.mask.item()) for answer in answers] == [1, 1, 1, 1, 0, 1]


def test_pettingzoo_truncated_agents_stay_alive_with_discount_one():
    _, _, answers = lived(lambda: Counters(cut=True))
    assert answers[3].last.item()
    assert answers[3].discount.item() == 1.0
    assert answers[3].obs["alive"][0, 0].tolist() == [1, 0, 1]
    np.testing.assert_array_equal(answers[3].obs["observation"][0, 0, :, 0], [1, 0, 3])


class Dropped(Counters):
    """Cuts red off after its first step, with or without a last observation, while others go on."""

    def __init__(self, shown=True):
        super().__init__(leave=9)
        self.shown = shown

    def step(self, actions):
        obs, paid, ended, cut, infos = super().step(actions)
        if self.time == 1:
            cut["red"] = True
            self.agents.remove("red")
            obs = obs if self.shown else {name: x for name, x in obs.items() if name != "red"}
        return obs, paid, ended, cut, infos


def test_pettingzoo_agent_cut_off_alone_is_observed_once_more_and_marked():
    _, obs, answers = lived(Dropped)
    status = [[answer.obs[name][0, 0].tolist() for name in ("alive", "truncated")]
              for answer in answers[:4]]  # fmt: skip
    assert status == [
        [[0, 1, 1], [1, 0, 0]], [[0, 1, 1], [0, 0, 0]],
        [[0, 1, 1], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]],
    ]  # fmt: skip
    seen = [answer.obs["observation"][0, 0, :, 0].tolist() for answer in answers[:3]]
    assert seen == [[1, 2, 3], [0, 2, 3], [0, 2, 3]]
    assert [answer.reward.item() for answer in answers[:2]] == [321.0, 320.0]
    assert [answer.discount.item() for answer in answers[:4]] == [1, 1, 1, 0]
    assert obs["truncated"][0, 0].tolist() == [0, 0, 0]


def test_pettingzoo_agent_cut_off_without_its_last_observation_is_refused():
    with pytest.raises(Mistake, match=r"step\(\) truncated agent red without an observation of it"):
        HostWorld(lambda: Dropped(shown=False), (0,), 1, workers=0)


def test_pettingzoo_action_masks_in_info_are_per_agent():
    spec, obs, _ = lived(lambda: Counters(told=True, leave=9), 1, (1, 2, 3))
    assert spec.obs["action_mask"].shape == (3, 4)
    np.testing.assert_array_equal(obs["action_mask"][0, 0], 1 - np.eye(4)[:3])


def test_pettingzoo_refuses_reward_weights():
    with pytest.raises(Mistake, match="the rewards of several agents are summed"):
        HostWorld(Counters, (0,), 1, workers=0, reward_weights="1,1,1")


def test_pettingzoo_pads_shorter_vectors_and_fewer_actions():
    spec, obs, _ = lived(lambda: Counters(sizes=(4, 2, 3), longer=2), 1, (1, 1, 1))
    np.testing.assert_array_equal(obs["observation"][0, 0], [[1, 0, 0], [2, 0, 0], [3, 3, 3]])
    allowed = [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]]
    np.testing.assert_array_equal(obs["action_mask"][0, 0], allowed)
    assert spec.action == spaces.MultiDiscrete([4, 4, 4])


def test_pettingzoo_refuses_mixed_spaces_and_turn_based_games():
    class Mixed(Counters):
        def observation_space(self, agent):
            return spaces.Discrete(5) if agent == "blue" else spaces.Box(0, 9, (1,), np.float32)

    class Turns(Counters):
        def agent_iter(self):
            return iter(self.agents)

    for made, said in ((Mixed, "have different spaces"), (Turns, "agents move in turn")):
        with pytest.raises(Mistake, match=said):
            HostWorld(made, (0,), 1, workers=0)


def test_pettingzoo_names_the_missing_package(monkeypatch):
    monkeypatch.setattr(pettingzoo_env, "_package_folder", lambda package: None)
    with pytest.raises(Mistake, match=r"needs PettingZoo: pip install 'sterling-rl\[pettingzoo\]'"):
        envs.make("pettingzoo:mpe2/simple_spread_v3", (0,), 1)


class Stated(Counters):
    """Those, with a state: the time, and who is there."""

    unseen = ("state",)
    state_space = spaces.Box(0.0, 9.0, (4,), np.float64)

    def state(self):
        return np.array([self.time, *(name in self.agents for name in self.possible_agents)], float)


def test_pettingzoo_global_state_is_observed_once_on_request():
    spec, obs, answers = lived(Stated)
    assert spec.unseen == ("state",)
    assert spec.obs["state"].shape == (4,)
    np.testing.assert_array_equal(obs["state"][0, 0], [0, 1, 1, 1])
    seen = [answer.obs["state"][0, 0].tolist() for answer in answers]
    assert seen[:2] == [[1, 1, 1, 1], [2, 1, 0, 1]]
    assert seen[4] == [0, 1, 1, 1]
    assert lived(Counters)[0].unseen == ()


def test_pettingzoo_refuses_a_missing_global_state():
    class Without(Counters):
        unseen = ("state",)

    class Other(Stated):
        unseen = ("secret",)

    for made, said in ((Without, "no state_space"), (Other, "unseen is .*'secret'")):
        with pytest.raises(Mistake, match=said):
            HostWorld(made, (0,), 1, workers=0)


def test_simple_spread_shows_its_state_on_request():
    name = "pettingzoo:mpe2/simple_spread_v3"
    world = envs.make(name, (0,), 2, state=True, workers=0)
    try:
        assert world.spec.unseen == ("state",)
        _, obs = world.reset(fixed_keys())
        own = np.asarray(obs["observation"])[0]
        np.testing.assert_allclose(obs["state"][0], own.reshape(2, -1), atol=1e-6)
    finally:
        world.close()
    with pytest.raises(Mistake, match="Give true or false"):
        envs.make(name, (0,), 1, state="all", workers=0)


@pytest.mark.slow
def test_pettingzoo_user_environment_trains_with_ippo(tmp_path):
    run = sterling.train(
        "ippo", lambda: Counters(told=True), steps=128, seeds=2, envs=2, length=16, minibatch=48,
        preset=False, evaluate_episodes=2, out=tmp_path / "run", env_options={"workers": 1},
    )  # fmt: skip
    final = run.result["final"]
    parts = [final[f"reward.{name}"]["per_seed"] for name in ("red", "green", "blue")]
    np.testing.assert_allclose(final["return"]["per_seed"], np.sum(parts, 0), rtol=1e-5)


def test_simple_spread_by_its_name():
    world = envs.make("pettingzoo:mpe2/simple_spread_v3", (0, 1), 2, N=4, workers=0)
    try:
        assert world.spec.agents.names == ("agent_0", "agent_1", "agent_2", "agent_3")
        _, obs = world.reset(fixed_keys())
        assert obs["observation"].shape[:3] == (2, 2, 4)
    finally:
        world.close()
    assert "mpe2/simple_spread_v3" in envs.names("pettingzoo:mpe2")["pettingzoo"]
    with pytest.raises(Mistake, match="did you mean max_cycles"):
        envs.make("pettingzoo:mpe2/simple_spread_v3", (0,), 1, max_cycle=3)
    with pytest.raises(Mistake, match="did you mean pettingzoo:mpe2/simple_spread_v3"):
        envs.make("pettingzoo:mpe2/simple_sprad_v3", (0,), 1)
