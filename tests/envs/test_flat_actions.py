"""Nested actions reach an environment in its own form, and policies choose and give numbers."""

import functools
import itertools
import re
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_case import every
from gymnasium import spaces

import sterling
from sterling import algorithms, envs
from sterling.cli import main
from sterling.deploy.export_policy import export_policy
from sterling.nets.action_heads import Actions
from sterling.problem.channels import Channel
from sterling.problem.hybrid_action import HybridAction
from sterling.types import Mistake, Spec

NESTED = spaces.Dict(
    {
        "move": spaces.Discrete(3, start=1),
        "grip": spaces.Tuple([spaces.MultiBinary(2), spaces.Box(-4.0, 4.0, (1,), np.float32)]),
    }
)


class Nested(gymnasium.Env):
    """Pays 1 for the move and the force that are seen, less what is wrong about them."""

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)

    def __init__(self, action_space=NESTED):
        self.action_space, self.taken = action_space, None

    def _seen(self):
        self.move, self.force = int(self.np_random.integers(3)), self.np_random.uniform(-1.0, 1.0)
        seen = np.zeros(4, np.float32)
        seen[self.move], seen[3] = 1.0, self.force
        return seen

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        if self.action_space is not NESTED:
            return self._seen(), 0.0, True, False, {}
        error = min(1.0, abs(float(action["grip"][1][0]) - 3.0 * self.force))
        reward = 0.5 * float(action["move"] - 1 == self.move) + 0.5 * (1.0 - error)
        return self._seen(), reward, True, False, {}


class Traced:
    """A world in JAX whose action is nested."""

    obs = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action = spaces.Dict({"by": spaces.Box(-2.0, 2.0, (1,), np.float32), "go": spaces.Discrete(2)})

    def reset(self, key):
        place = jax.random.uniform(key, (1,), minval=-1.0, maxval=1.0)
        return place, place

    def step(self, state, action, key):
        right = ((action["go"] == 1) == (state[0] > 0.0)).astype(jnp.float32)
        over = jnp.ones((), bool)
        return state, state, right - jnp.abs(action["by"][0] - state[0]), over, ~over


@pytest.mark.slow
def test_nested_actions_of_a_traced_environment_pass_the_check_command(capsys):
    assert main(["check", f"{__file__}:Traced"]) == 0
    assert "0 fail" in capsys.readouterr().out


def test_nested_box_actions_are_clipped_to_their_bounds():
    world = envs.make(Traced, (0,), 1)
    found = world.to_world(np.array([[[1.0, 7.0]]], np.float32))
    np.testing.assert_array_equal(found["by"][0, 0], [2.0])
    assert found["go"][0, 0] == 1


def test_hybrid_actions_put_choices_first_and_rescale_numbers():
    world = envs.make(Nested, (0,), 1, workers=0)
    try:
        space = world.spec.action
        assert isinstance(space, HybridAction)
        assert (space.choices, space.numbers) == ((2, 2, 3), 1)
        np.testing.assert_array_equal(space.high, [1, 1, 2, 1])
        row = np.array([1.0, 0.0, 2.0, 0.5], np.float32)
        found = world.to_world(row[None, None])
    finally:
        world.close()
    assert found["move"][0, 0] == 3  # counted from 1 there
    np.testing.assert_array_equal(found["grip"][0][0, 0], [1, 0])
    np.testing.assert_allclose(found["grip"][1][0, 0], [2.0])


@pytest.mark.parametrize(
    ("space", "flat"),
    [
        (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.MultiDiscrete([3, 4])}), [2, 3, 4]),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), [2, 3, 4, 5]),
        (spaces.MultiBinary((2, 2)), [2, 2, 2, 2]),
        (spaces.Tuple([spaces.Box(0.0, 9.0, (2,)), spaces.Box(-np.inf, np.inf, (1,))]), None),
    ],
)
def test_nested_actions_of_one_kind_become_a_plain_space(space, flat):
    run = sterling.train(
        "ppo", lambda: Nested(space), steps=16, envs=2, length=4, minibatch=8, epochs=1, width=4,
        workers=0, evaluate_episodes=1, preset=False,
    )  # fmt: skip
    found = run.world().spec.action
    if flat is None:
        np.testing.assert_array_equal(found.low, [-1, -1, -np.inf])
    else:
        assert found == spaces.MultiDiscrete(flat)
    assert space.contains(run.policy(np.zeros(4, np.float32)))


def test_nested_actions_refuse_an_unsupported_leaf_space():
    space = spaces.Dict({"say": spaces.Text(3), "do": spaces.Discrete(2)})
    with pytest.raises(Mistake, match=r"has a part of type Text\. Use Box, Discrete"):
        envs.make(lambda: Nested(space), (0,), 1, workers=0).close()


def test_the_joint_log_probability_is_the_sum_of_its_parts():
    actions = Actions.from_space(HybridAction((3, 2), np.full(2, -1.0), np.ones(2)))
    outputs = jnp.asarray(np.random.default_rng(0).normal(size=(4, 7)), jnp.float32)
    log_std = jnp.asarray([9.0] * 5 + [0.1, -0.3])  # those of the choices mean nothing
    pi = actions.distribution(outputs, log_std=log_std)
    action = np.array([[0, 1, 0.2, -0.5], [2, 0, 1.0, 0.0], [1, 1, 0, 0], [0, 0, -1, 2]], "f4")
    out, expected, entropy = np.asarray(outputs, np.float64), [], []
    for row, taken in zip(out, action, strict=True):
        log_p = [x - np.log(np.exp(x).sum()) for x in (row[:3], row[3:5])]
        total = log_p[0][int(taken[0])] + log_p[1][int(taken[1])]
        spread = np.exp([0.1, -0.3])
        z = (taken[2:] - row[5:]) / spread
        total += (-0.5 * z**2 - np.log(spread) - 0.5 * np.log(2 * np.pi)).sum()
        expected.append(total)
        entropy.append(
            -sum((np.exp(x) * x).sum() for x in log_p)
            + (np.log(spread) + 0.5 * np.log(2 * np.pi * np.e)).sum()
        )
    np.testing.assert_allclose(pi.log_prob(jnp.asarray(action)), expected, rtol=1e-5)
    np.testing.assert_allclose(pi.entropy(), entropy, rtol=1e-5)
    np.testing.assert_allclose(pi.kl(pi), np.zeros(4), atol=1e-6)
    sample = np.asarray(pi.sample(jax.random.key(0)))
    np.testing.assert_array_equal(sample[:, :2], np.rint(sample[:, :2]))
    assert actions.encode(jnp.asarray(action)).shape == (4, 7)


@pytest.mark.slow
def test_ppo_learns_hybrid_actions_and_reloads(tmp_path):
    run = sterling.train(
        "ppo", Nested, steps=24_000, seeds=2, envs=8, workers=0, lr=3e-3, normalise_reward=False,
        gamma=0.5, length=32, minibatch=64, out=tmp_path / "run",
    )  # fmt: skip
    assert min(run.result["final"]["return"]["per_seed"]) > 0.9
    seen = np.array([0.0, 1.0, 0.0, 0.5], np.float32)
    action = run.policy(seen)
    assert action["move"] == 2
    np.testing.assert_allclose(action["grip"][1], 1.5, atol=0.3)
    with pytest.raises(Mistake, match="nested actions"):
        export_policy(sterling.load(tmp_path / "run"), tmp_path / "policy.npz")


SPACES = {
    "discrete": spaces.Discrete(3),
    "box": spaces.Box(-1.0, 1.0, (2,), np.float32),
    "multi": spaces.MultiDiscrete([2, 3]),
    "binary": spaces.MultiBinary(2),
    "hybrid": HybridAction((2,), -np.ones(1), np.ones(1)),
}
FIELDS = {
    "cem-rl": {"members": 64},
    "edac": {"diversity": None},
    "dt": {"target": 1.0, "horizon": 4},
}
NOT_OF_ONE_AGENT = {"ippo", "mappo", "maml", "distill", "pebble"}
CONTROL = [
    name
    for name, module in algorithms.ALGORITHMS.items()
    if ".language" not in module and name not in NOT_OF_ONE_AGENT
]


@functools.cache  # many refusals name the same others
def make_agent(name, kind):
    algorithm, costs = algorithms.find(name), {"cost": Channel(better=-1)}
    envs = 1 if name.startswith("stream-") else 64
    obs = spaces.Box(-1.0, 1.0, (3,), np.float32)
    if ".goals." in algorithms.ALGORITHMS[name]:  # which are asked for goals
        obs = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), obs))
    spec = Spec(obs, SPACES[kind], envs=envs, channels=costs)
    config = algorithm.Config(**FIELDS.get(name, {}))
    jax.eval_shape(lambda key: algorithm.init(key, spec, config), jax.random.key(0))


@functools.cache
def documented():
    """The algorithms that docs/choosing.md names for each kind of actions."""
    page = (Path(__file__).parents[2] / "docs" / "choosing.md").read_text()
    rows = page.partition("## From the actions")[2].partition("## ")[0].splitlines()
    rows = [row.split("|")[1:-1] for row in rows if row.startswith("| `")]
    named = [set(re.findall(r"[a-z][a-z0-9-]+", f"{row[1]} {row[2]}")) for row in rows]
    return dict(zip(SPACES, named, strict=True))


@every("name, kind", itertools.product(CONTROL, SPACES))
def test_algorithms_accept_an_action_space_or_name_one_that_does(name, kind):
    if name in documented()[kind]:
        make_agent(name, kind)
        return
    with pytest.raises(Mistake) as caught:
        make_agent(name, kind)
    said = str(caught.value)
    assert "\n" not in said
    others = said.partition(" actions. Use ")[2].replace(",", " ").replace(".", " ").split()
    named = [word for word in others if word in algorithms.ALGORITHMS]
    assert named, said
    for other in named:
        make_agent(other, kind)
