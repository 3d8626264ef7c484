"""The axis of agents: spaces side by side, the reward as a sum, each agent in its own row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling import envs, random_keys
from sterling.experience.rollouts.random_actions import RandomActor
from sterling.experience.rollouts.rollout import Rollout
from sterling.problem.agent_axis import Agents, agent_space, joint
from sterling.types import Mistake, Spec

NAMES = ("red", "green", "blue")
EACH = [
    spaces.Box(np.float32([-1, 0]), np.float32([1, 5])),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Discrete(4),
    spaces.Discrete(3, start=2),
    spaces.MultiDiscrete([2, 5]),
    spaces.MultiBinary(4),
    spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Tuple([spaces.MultiBinary(2)])}),
]


class Counters:
    """Agents who count: each sees its own number, by which what it does is multiplied and paid;
    what an agent may do, out of four, is not its own number."""

    agents = NAMES
    action = joint(spaces.Discrete(4), 3)
    obs = spaces.Dict({
        "own": joint(spaces.Box(0.0, 9.0, (1,), np.float32), 3),
        "action_mask": spaces.MultiBinary((3, 4)),
    })  # fmt: skip

    def _seen(self):
        numbers = jnp.arange(3, dtype=jnp.int32)
        allowed = (numbers[:, None] != jnp.arange(4)[None]).astype(jnp.int8)
        return {"own": numbers[:, None].astype(jnp.float32), "action_mask": allowed}

    def reset(self, key):
        return jnp.zeros((), jnp.int32), self._seen()

    def step(self, state, action, key):
        paid = (10.0 ** jnp.arange(3, dtype=jnp.float32)) * action.astype(jnp.float32)
        over = state + 1 >= 3
        return state + 1, self._seen(), paid, over, jnp.zeros((), bool)


class Mixed(Counters):
    """As those, but one sees something else."""

    obs = spaces.Box(np.float32([[0], [0], [0]]), np.float32([[9], [9], [1]]))


@pytest.mark.parametrize("space", EACH, ids=str)
def test_agent_space_recovers_the_single_space_from_the_joint_one(space):
    whole = joint(space, 3)
    assert agent_space(whole, 3) == space
    leaves = jax.tree.leaves(whole.sample())
    assert all(np.shape(leaf)[0] == 3 for leaf in leaves)


def test_agent_axis_refuses_invalid_names_and_mixed_spaces():
    with pytest.raises(Mistake, match="each name once"):
        Agents(("red", "red"))
    with pytest.raises(Mistake, match="is not a valid agent name"):
        Agents(("the red one",))
    with pytest.raises(Mistake, match="no axis of 3 agents"):
        agent_space(spaces.Discrete(3), 3)
    with pytest.raises(Mistake, match="different spaces"):
        envs.make(Mixed, (0,), 1)


def test_single_agent_spec_drops_the_agent_axis():
    alive = spaces.MultiBinary(3)
    obs = spaces.Dict({"own": joint(EACH[0], 3), "alive": alive})
    agents = Agents(NAMES)
    one = agents.single_agent_spec(
        Spec(obs, joint(EACH[2], 3), 5, channels=agents.channels, agents=agents)
    )
    assert (one.obs, one.action) == (spaces.Dict({"own": EACH[0]}), EACH[2])
    assert (one.envs, one.agents, one.channels) == (15, None, {})


@pytest.mark.parametrize("strategy", ["map", "vmap"])
def test_multi_agent_actions_and_rewards_stand_in_each_agents_row(strategy):
    world = envs.make(Counters, (0, 1), 4, strategy=strategy)
    start = random_keys.for_seeds(jnp.arange(2, dtype=jnp.int32), "test", 0)
    _, rows = Rollout.create(world, 7, start).live(RandomActor(None, world), start)
    paid = np.where(rows.mask[..., None], 10.0 ** np.arange(3) * np.asarray(rows.action), 0.0)
    np.testing.assert_array_equal(rows.extras["reward"], paid)
    np.testing.assert_array_equal(rows.reward, paid.sum(-1))
    whole = np.asarray(rows.extras["episode/reward"])[np.asarray(rows.last)]
    assert whole.shape[-1] == 3
    ended = paid[:, :3].sum(1)[:, None]  # the first episode of each env
    np.testing.assert_array_equal(np.asarray(rows.extras["episode/reward"])[:, 2:3], ended)


def test_multi_agent_random_actions_respect_each_agents_mask():
    world = envs.make(Counters, (0,), 32)
    start = random_keys.for_seeds(jnp.zeros(1, jnp.int32), "test", 0)
    _, rows = Rollout.create(world, 7, start).live(RandomActor(None, world), start)
    done = [set(np.unique(rows.action[..., agent])) for agent in range(3)]
    assert done == [{1, 2, 3}, {0, 2, 3}, {0, 1, 3}]


def test_single_agent_algorithms_refuse_multi_agent_environments_and_vice_versa():
    for name in ("recurrent-ppo", "sac"):
        with pytest.raises(Mistake, match=f"{name} trains one agent.* 3\. Use ippo"):
            sterling.train(name, Counters, steps=60_000, preset=False)
    with pytest.raises(Mistake, match=r"has one\. Use ppo"):
        sterling.train("ippo", "probe:both", steps=4096, preset=False)


def test_multi_agent_environments_refuse_frame_stack_and_flatten():
    for options, said in (({"stack": 2}, "stack=1"), ({"flatten": True}, "Leave out flatten")):
        with pytest.raises(Mistake, match=said):
            envs.make("spread:2-agents-3x3", (0,), 1, **options)
    with pytest.raises(Mistake, match="need a task of one agent"):
        envs.make("trials:2:spread:2-agents-3x3", (0,), 1)


def test_multi_agent_environments_refuse_a_scalar_reward():
    class One(Counters):
        def step(self, state, action, key):
            return state, self._seen(), jnp.zeros(()), state > 0, state > 0

    with pytest.raises(Mistake, match="one number for each of 3 agents as reward"):
        envs.make(One, (0,), 1)
