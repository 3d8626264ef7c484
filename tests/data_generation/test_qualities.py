"""Datasets by quality: what is in them, where it came from, and that it can be made again."""

import contextlib
import dataclasses
from functools import partial

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_key

import sterling
from sterling import envs
from sterling.cli import main
from sterling.data import Dataset, check
from sterling.data.description.dataset_description import describe
from sterling.data_generation import policy_rollouts
from sterling.data_generation.dataset_order import DatasetOrder
from sterling.data_generation.make_dataset import make_dataset
from sterling.envs.native.classic_control import CartPole
from sterling.evaluation import TrainedPolicy, behaviour, estimate_policy_value
from sterling.evaluation.off_policy import importance_estimates
from sterling.types import Mistake

KEYS = partial(jax.random.split, constant_key(0))
LARGEST = np.finfo(np.float32).max
CART = DatasetOrder("CartPole-v1", "medium", 3000, steps=12_000)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("agents")


@pytest.fixture(scope="module")
def made(kept, tmp_path_factory):
    """Every quality of CartPole, from one training, and what was said meanwhile."""
    home, said = tmp_path_factory.mktemp("data"), {}
    found = {}
    for quality in ("random", "medium", "expert", "medium-expert", "medium-replay", "full-replay"):
        lines = said.setdefault(quality, [])
        order = dataclasses.replace(CART, quality=quality)
        found[quality] = make_dataset(order, home / quality, kept, lines.append)
    return found, said


@pytest.mark.slow
def test_dataset_qualities_differ_in_return_as_named(made):
    data = made[0]
    assert {name: one.rows for name, one in data.items() if name != "medium-replay"} == {
        name: 3000 for name in data if name != "medium-replay"
    }
    low, high = data["medium"].facts.reference
    mean = {name: float(one.returns.mean()) for name, one in data.items()}
    assert 18 < low < 28
    assert mean["random"] == pytest.approx(low, abs=5)
    assert mean["random"] < mean["medium"] < mean["expert"] <= 500
    assert high > 3 * low
    half = data["medium-expert"]
    assert [one.source.name.split(":")[0] for one in (half[0], half[-1])] == ["medium", "expert"]
    begun = data["medium-replay"].returns[:10].mean()
    assert begun < mean["full-replay"]  # it begins where nothing is learned yet


@pytest.mark.slow
def test_dataset_qualities_share_one_training(made):
    trainings = {name: any("training" in line for line in lines) for name, lines in made[1].items()}
    assert [name for name, trained in trainings.items() if trained] == ["medium"]


@pytest.mark.parametrize("quality", ["random", "medium", "medium-replay", "full-replay"])
def test_generated_rows_follow_cartpole_dynamics(made, quality):
    data = made[0][quality]
    rows = data.transitions()
    pushed = jax.vmap(CartPole().step)(rows.obs, rows.action, KEYS(len(rows.reward)))[1]
    np.testing.assert_allclose(rows.next_obs, pushed, atol=1e-5)
    fallen = (abs(np.asarray(rows.next_obs)[:, 0]) > 2.4) | (
        abs(np.asarray(rows.next_obs)[:, 2]) > 12 * np.pi / 180
    )
    np.testing.assert_array_equal(np.asarray(rows.discount) == 0, fallen)
    assert np.isfinite(np.asarray(rows.extras["log_prob"])).all()
    kinds = {(one.severity, one.kind) for one in check(data)}
    assert not {kind for kind in kinds if kind[0] == "error"}


def test_generated_dataset_sources_hold_the_command_to_reproduce(made):
    one = made[0]["medium-expert"].facts
    medium, expert = one.sources
    assert one.environment == "CartPole-v1"
    words = "sterling data make CartPole-v1 --quality medium-expert --size 3000 --seed 0"
    assert medium.generator == expert.generator == f"{words} --agent ppo --steps 12000"
    assert len(medium.policy) == len(expert.policy) == 64
    assert medium.policy != expert.policy
    assert medium.policy == made[0]["medium"].facts.sources[0].policy
    assert "seed 0, exploring" in medium.name
    short = made[0]["medium-replay"]
    if short.rows < 3000:
        assert f"training collected only {short.rows:,}" in short.facts.sources[0].notes[0]


@pytest.mark.slow
def test_generated_dataset_is_reproducible_byte_for_byte(made, tmp_path):
    """With a training of its own: nothing is taken from the one before."""
    for quality in ("medium", "medium-replay"):
        order = dataclasses.replace(CART, quality=quality)
        make_dataset(order, tmp_path / quality, tmp_path / "agents")
        files = sorted(path.name for path in (tmp_path / quality).iterdir())
        first = made[0][quality].path
        assert files == sorted(path.name for path in first.iterdir())
        for name in files:
            assert (tmp_path / quality / name).read_bytes() == (first / name).read_bytes(), name
    other = make_dataset(dataclasses.replace(CART, quality="random", seed=1), tmp_path / "other")
    assert other.hash != made[0]["random"].hash


def test_generated_actions_are_stored_in_environment_units(kept, tmp_path):
    order = DatasetOrder("Pendulum-v1", "random", 500)
    data = make_dataset(order, tmp_path / "random", kept)
    action = np.concatenate([one.action for one in data])[:, 0]
    assert 1.8 < action.max() <= 2.0
    obs = np.concatenate([one.obs[:-1] for one in data])
    reward = np.concatenate([one.reward for one in data])
    angle = np.arctan2(obs[:, 1], obs[:, 0])
    cost = angle**2 + 0.1 * obs[:, 2] ** 2 + 0.001 * action**2
    np.testing.assert_allclose(reward, -cost, atol=1e-3)
    rows = data.transitions()
    np.testing.assert_allclose(np.asarray(rows.action)[:, 0], action / 2, atol=1e-6)
    np.testing.assert_allclose(rows.extras["log_prob"], -np.log(2.0), rtol=1e-6)
    stored = np.concatenate([one.extras["log_prob"] for one in data])
    np.testing.assert_allclose(stored, -np.log(4.0), rtol=1e-6)  # between -2 and 2
    assert data.lengths.tolist() == [200, 200, 100]
    assert not data.ended.any()


@pytest.fixture(scope="module")
def pendulum(kept, tmp_path_factory):
    order = DatasetOrder("Pendulum-v1", "expert", 600, steps=4096)
    return make_dataset(order, tmp_path_factory.mktemp("pendulum") / "expert", kept)


def test_generated_dataset_keeps_unclipped_chosen_actions(pendulum):
    data, rows = pendulum, pendulum.transitions()
    chosen = np.asarray(rows.extras["chosen"])
    assert (abs(chosen) > 1).any()
    np.testing.assert_allclose(np.asarray(rows.action), np.clip(chosen, -1, 1), atol=1e-6)
    stored = np.concatenate([one.extras["chosen"] for one in data])
    np.testing.assert_allclose(stored, 2 * chosen, rtol=1e-6)


def test_behaviour_policy_has_importance_ratio_one_on_its_own_dataset(kept, pendulum):
    """Also where the world clipped what it chose, and where its bounds are not -1 and 1."""
    data = pendulum
    (home,) = kept.glob("ppo-Pendulum-v1-4096-0")
    policy = TrainedPolicy.from_run(sterling.load(home / "expert"), data.spec)
    found = importance_estimates.make_tables(policy, data)
    np.testing.assert_allclose(found.ratio, 1.0, atol=1e-3)
    own = behaviour(data, gamma=0.9)
    judged = estimate_policy_value(policy, data, "is", gamma=0.9)
    assert judged.value == pytest.approx(own.value, rel=1e-3)


@pytest.mark.slow
def test_full_replay_dataset_of_dqn_follows_cartpole_dynamics(kept, tmp_path):
    order = DatasetOrder("CartPole-v1", "full-replay", 10_000, agent="dqn", steps=2024)
    data = make_dataset(order, tmp_path / "replay", kept)
    assert data.rows == 2024 - len(data) + (~data.ended[-1:]).sum()  # but for the resets
    assert "training collected only" in data.facts.sources[0].notes[0]
    first = np.stack([one.obs[0] for one in data])
    assert (abs(first) <= 0.05).all()
    rows = data.transitions()
    pushed = jax.vmap(CartPole().step)(rows.obs, rows.action, KEYS(len(rows.reward)))[1]
    np.testing.assert_allclose(rows.next_obs, pushed, atol=1e-5)


def test_envpool_autoreset_rows_are_not_in_generated_datasets(tmp_path):
    data = make_dataset(DatasetOrder("envpool:CartPole-v1", "random", 700), tmp_path / "pool")
    assert data.rows == 700
    assert data.ended[:-1].all()
    assert (abs(np.stack([one.obs[0] for one in data])) <= 0.05).all()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"quality": "expret"}, "Unknown quality 'expret'; did you mean expert?"),
        ({"environment": "CartPol-v1"}, "Unknown environment 'CartPol-v1'; did you mean CartP"),
        ({"agent": "ppoo"}, "Unknown algorithm 'ppoo'; did you mean ppo"),
        ({"size": 0}, "size and workers must be positive"),
        ({"steps": 10}, "steps=10 is below one iteration of ppo"),
        ({"quality": "scripted"}, "There is no script for 'CartPole-v1'"),
    ],
)
def test_invalid_dataset_orders_are_refused(changed, said, tmp_path):
    with pytest.raises(Mistake, match=said):
        make_dataset(dataclasses.replace(CART, **changed), tmp_path / "never", tmp_path)
    assert not (tmp_path / "never").exists()


def test_data_make_command_writes_a_dataset(capsys, tmp_path):
    out = str(tmp_path / "data")
    words = ["data", "make", "CartPole-v1", "--quality", "random", "--size", "300", "--out", out]
    assert main(words) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0].startswith(f"{out}: ")
    assert ", 300 rows, return " in lines[0]
    assert lines[1:] == [f"hash {Dataset(out).hash[:12]}", "uniformly random actions"]
    assert said.err == ""
    assert main([*words[:4], "mediumm", *words[5:]]) == 2
    assert "did you mean medium?" in capsys.readouterr().err


@pytest.mark.parametrize(("world", "size"), [("tabular:chain-8", 400), ("CartPole-v1", 8)])
def test_data_make_command_prints_the_return_as_describe(world, size, capsys, tmp_path):
    """Returns of 0 and 1 are no successes, and that of one episode is called a return too."""
    out = str(tmp_path / "data")
    assert (
        main(["data", "make", world, "--quality", "random", "--size", str(size), "--out", out]) == 0
    )
    said = capsys.readouterr().out.splitlines()[0]
    assert said.endswith(f", return {describe(Dataset(out)).returns}")


@contextlib.contextmanager
def registered(name, entry):
    gymnasium.register(name, entry_point=entry, max_episode_steps=5)
    try:
        yield
    finally:
        gymnasium.registry.pop(name)


class Signed(gymnasium.Env):
    """Choices from -1; what was chosen is seen next and paid."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3, start=-1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.array([action], np.float32), float(action), False, False, {}


def test_generated_discrete_actions_keep_the_environments_start(tmp_path):
    order = DatasetOrder("Signed-v0", "random", 60, env_options={"workers": 0})
    with registered("Signed-v0", Signed):
        data = make_dataset(order, tmp_path / "signed")
    assert data.action_space == Signed.action_space
    assert data.spec.action == gymnasium.spaces.Discrete(3)
    rows = next(data.blocks(60)).arrays
    assert set(rows["action"]) == {-1, 0, 1}
    np.testing.assert_array_equal(rows["action"], rows["reward"])


class Measured(Signed):
    """Numbers within one of several boxes."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, space):
        self.action_space = space

    def step(self, action):
        return np.array(action, np.float32), float(action[0]), False, False, {}


class Absurd(eqx.Module):
    """Its actions are none."""

    def act(self, obs, keys, explore):
        return jnp.full((1, 2, 1), jnp.nan), {}


def test_collect_rows_gives_up_when_every_step_is_invalid():
    space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    world = envs.make(lambda: Measured(space), (0,), 2, workers=0)
    with pytest.raises(Mistake, match=r"All 2,048 steps were invalid.*bounds"):
        policy_rollouts.collect_rows(world, Absurd(), 10, 0)


BOXES = {
    "huge": gymnasium.spaces.Box(-LARGEST, LARGEST, (1,), np.float32),
    "half": gymnasium.spaces.Box(0.0, np.inf, (1,), np.float32),
    "bytes": gymnasium.spaces.Box(0, 255, (1,), np.uint8),
    "free": gymnasium.spaces.Box(-(2**31), 2**31 - 1, (1,), np.int32),
}


@pytest.mark.parametrize(
    "name",
    ["half", *(pytest.param(x, marks=pytest.mark.slow) for x in ("bytes", "huge", "free"))],
)
def test_generated_box_actions_equal_those_received_by_the_environment(tmp_path, name):
    """Also where a box has one bound, or holds integers."""
    space = BOXES[name]
    order = DatasetOrder("Measured-v0", "random", 60, env_options={"workers": 0})
    with registered("Measured-v0", lambda: Measured(space)):
        data = make_dataset(order, tmp_path / "measured")
    rows = next(data.blocks(60)).arrays
    np.testing.assert_array_equal(rows["action"][:, 0], rows["reward"])
    assert rows["action"].dtype == space.dtype
    assert "extra/chosen" in rows
    assert not [one for one in check(data) if one.severity == "error"]
