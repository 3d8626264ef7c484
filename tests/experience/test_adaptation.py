"""Agents that adapt: which state acts when and in which level, and how they are evaluated.

The agent of these tests tries both actions at random, and after adaptation takes the one that paid.
So its right action in every level of ``probe:levels-hidden`` is known.
"""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array

import sterling
from sterling import envs, random_keys
from sterling.experience.levels.one_level import begin_in_one_level, begun_levels
from sterling.experience.rollouts.adaptation_rollout import Adaptation
from sterling.report.pictures.policy_video import Scene
from sterling.training.agent import Agent
from sterling.training.evaluation.evaluate_policy import BEFORE, evaluate
from sterling.training.evaluation.film_policy import adapting_reset
from sterling.types import Rollouts, Signals, config

ENVS, SEEDS = 6, constant_array([3, 8], np.int32)
FIRST, ALL = 9, 16  # rows to adapt to, and all rows; an episode has two rows and a reset


@config
class Config:
    """Nothing to set."""


class Tries:
    """Takes action 1, or after adaptation the action that paid; it learns nothing."""

    Config = Config

    @staticmethod
    def needs(config):
        return Rollouts(ALL, adapt=FIRST)

    @staticmethod
    def init(key, spec, config):
        return {"right": jnp.ones((), jnp.int32)}

    @staticmethod
    def act(state, obs, key, explore):
        right = jnp.broadcast_to(state["right"], obs.shape[:1])
        tried = jax.random.bernoulli(key, 0.5, obs.shape[:1]).astype(jnp.int32)
        return tried if explore else right, {"right": right}

    @staticmethod
    def adapt(state, batch, key):
        gain = jnp.where(batch.action == 1, batch.reward, -batch.reward)
        assert batch.mask.shape == (FIRST, 1)
        return {"right": (gain.sum(where=batch.mask) > 0).astype(jnp.int32)}

    @staticmethod
    def learn(state, batch, key):
        return state, Signals({"rows": batch.mask.sum().astype(jnp.float32)})


@pytest.fixture(params=[True, False], ids=["compiled", "host"])
def world(request):
    made = envs.make("probe:levels-hidden", (3, 8), ENVS, strategy="map")
    made.traced = request.param
    return made


def agent_for(world):
    return Agent.create(
        Tries, random_keys.for_seeds(SEEDS, "agent", 0), world.spec, Config(), "map"
    )


def rows_of(world, count=0):
    source = Adaptation.create(world, Tries.needs(None))
    source, draws = source.collect(agent_for(world), random_keys.for_seeds(SEEDS, "draw", count))
    return source, jax.tree.map(np.asarray, draws.record)


def test_adaptation_rollout_keeps_each_env_in_one_level_with_its_adapted_state(world):
    _, rows = rows_of(world)
    assert rows.mask.shape == (2, ALL, ENVS)
    begun, right = rows.extras["begun"], rows.extras["right"]
    levels = begun[:, 0]
    assert np.isin(levels, np.asarray(world.book)).all()
    assert len(np.unique(levels)) > 6
    np.testing.assert_array_equal(begun, np.where(rows.mask, levels[:, None], 0.0))
    assert (right[:, :FIRST] == 1).all()  # the one state of all envs
    wanted = np.broadcast_to((levels > 0)[:, None], right[:, FIRST:].shape)
    np.testing.assert_array_equal(right[:, FIRST:], wanted)
    assert 0 < wanted.mean() < 1


def test_adaptation_rollout_episodes_continue_across_the_adaptation_step(world):
    source, rows = rows_of(world)
    resets = np.arange(ALL) % 3 == 2  # no reset of its own at the beginning, nor at row FIRST
    np.testing.assert_array_equal(rows.mask, np.tile(~resets[:, None], (2, 1, ENVS)))
    assert source.tally.episodes.tolist() == [5 * ENVS, 5 * ENVS]
    np.testing.assert_array_equal(rows.next_obs[:, :-1], rows.obs[:, 1:])
    again = rows_of(world, 1)[1].extras["begun"][:, 0]
    assert (again != rows.extras["begun"][:, 0]).any()  # levels are drawn anew


@pytest.mark.parametrize("one_level", [True, False])
def test_levels_of_episodes_are_those_that_their_world_begins_in(one_level):
    world = envs.make("probe:levels-hidden", (3, 8), ENVS, purpose="evaluate", strategy="map")
    keys = jax.vmap(jax.random.key)(SEEDS)
    state, obs = world.reset(keys)
    if one_level:
        state, obs = begin_in_one_level(world, state, obs, keys)
    _, step = world.step(state, jnp.zeros((2, ENVS), jnp.int32), keys)
    assert step.mask.all()
    np.testing.assert_array_equal(begun_levels(world, keys, one_level), step.channels["begun"])


@pytest.mark.slow
def test_adaptation_is_evaluated_before_and_after_on_the_same_held_out_levels():
    world = envs.make("probe:levels-hidden", (3, 8), ENVS, purpose="evaluate", strategy="map")
    for traced in (True, False):
        world.traced = traced
        found = evaluate(agent_for(world), world, SEEDS, 5 * ENVS, 100)
        levels = found["begun"]
        assert np.isin(levels, np.asarray(world.book)).all()
        assert len(np.unique(levels)) > 20
        np.testing.assert_array_equal(found["level/value"], levels)
        np.testing.assert_array_equal(found[BEFORE], levels)  # action 1 everywhere
        np.testing.assert_array_equal(found["return"], np.abs(levels))
        assert (found["length"] == 2).all()
        assert found["ended"].all()


def test_adaptation_treats_an_environment_without_levels_as_one_task():
    made = envs.make("probe:action", (3, 8), ENVS, strategy="map")
    rows = rows_of(made)[1]
    assert rows.mask.shape == (2, ALL, ENVS)
    assert (rows.extras["right"][:, FIRST:] == 1).all()
    found = evaluate(agent_for(made), made, SEEDS, ENVS, 100)
    assert (found["return"] == 1.0).all()
    assert not [name for name in found if name.startswith("level/")]


@pytest.fixture(scope="module")
def trained():
    """A run of two seeds whose agents take action 1 until they adapt."""
    how = {"steps": 2 * ALL * ENVS, "envs": ENVS, "evaluate_episodes": 0, "preset": False}
    return sterling.train(Tries, "probe:levels-hidden", seeds=[3, 8], **how)


@pytest.mark.slow
def test_adaptation_player_acts_with_the_state_adapted_to_its_level(trained):
    world = envs.make("probe:levels-hidden", (0,), 1, strategy="map")
    obs, wanted, found = np.zeros(2, np.float32), [], []
    for number in range(6):
        player = trained.player(8)
        levels = random_keys.for_seeds(jnp.asarray([0]), "level", number)
        assert player(obs) == 1
        player.adapt(world, levels)
        state, _ = begin_in_one_level(world, *world.reset(levels), levels)
        wanted.append(world.step(state, jnp.ones((1, 1), jnp.int32), levels)[1].channels["begun"])
        found.append(player(obs))
    np.testing.assert_array_equal(found, np.ravel(wanted) > 0)
    assert 0 < np.mean(found) < 1
    assert trained.player(8)(obs) == 1  # other players are as before


@pytest.mark.parametrize("seed", range(3))
def test_adaptation_video_shows_the_adapted_policy(trained, seed):
    world = envs.make("probe:levels-hidden", (0,), 1, strategy="map")
    player, rewards = trained.player(3), []
    frames = Scene(world, lambda obs, copy: obs, 30.0).frames(
        lambda obs: player.act(obs[0])[None],
        lambda reward, last: rewards.append(reward),
        adapting_reset(player), 9, seed,
    )  # fmt: skip
    assert len(list(frames)) == 10
    assert np.count_nonzero(rewards) >= 3
    assert len({abs(reward) for reward in rewards if reward}) == 1  # of one level
    assert min(rewards) == 0.0  # the right action in every episode


def test_learners_of_a_replay_are_evaluated_after_adaptation(tmp_path):
    """They collect without it."""
    path, replay = tmp_path / "tries.py", "Needs(1, (Feed(batch=8),), capacity=99, adapt=9)"
    path.write_text(ALGORITHM.replace(ROLLOUTS, replay))
    rows, how = [], {"steps": 64, "envs": 2, "seeds": 2, "log_every": 32, "preset": False}
    sink = types.SimpleNamespace(write=rows.append, close=lambda: None)
    run = sterling.train(
        str(path), "probe:levels-hidden", sinks=[sink], evaluate_episodes=4, quiet=True, **how
    )
    final = {name: np.asarray(x["per_seed"]) for name, x in run.result["final"].items()}
    assert final[BEFORE].all()
    np.testing.assert_allclose(final[BEFORE], final["begun"], rtol=1e-6)  # by action 1
    np.testing.assert_allclose(final["return"], -final["begun"], rtol=1e-6)  # by action 0
    assert np.min(rows[0]["data/episodes"]) > 0


@pytest.mark.parametrize("strategy", ["map", pytest.param("processes", marks=pytest.mark.slow)])
def test_adaptation_results_hold_returns_before_and_after(strategy, tmp_path):
    how = {"steps": 4 * ALL * ENVS, "envs": ENVS, "seeds": 2, "evaluate_episodes": 10}
    how |= {"log_every": 2 * ALL * ENVS, "evaluate_every": 2 * ALL * ENVS, "preset": False}
    path = tmp_path / "tries.py"
    path.write_text(ALGORITHM)
    rows, how["strategy"] = [], strategy
    sink = types.SimpleNamespace(write=rows.append, close=lambda: None)
    run = sterling.train(str(path), "probe:levels-hidden", sinks=[sink], **how)
    final = {name: np.asarray(x["per_seed"]) for name, x in run.result["final"].items()}
    assert final[BEFORE].all()
    np.testing.assert_allclose(final[BEFORE], final["begun"], rtol=1e-6)  # by action 1
    np.testing.assert_allclose(final["return"], -final["begun"], rtol=1e-6)  # by action 0
    assert f"evaluation/{BEFORE}" in rows[0]


ROLLOUTS = "Rollouts(16, adapt=9)"
ALGORITHM = '''"""Takes action 1, or action 0 after adaptation."""

import jax.numpy as jnp
from sterling.types import Feed, Needs, Rollouts, Signals, config


@config
class Config:
    width: int = 1  # of nothing


def needs(config):
    return Rollouts(16, adapt=9)


def init(key, spec, config):
    return {"action": jnp.ones((), jnp.int32)}


def act(state, obs, key, explore):
    return jnp.broadcast_to(state["action"], obs.shape[:1]), {}


def adapt(state, batch, key):
    return {"action": 0 * state["action"]}


def learn(state, batch, key):
    return state, Signals({"a/b": batch.reward.mean()})
'''


def test_adaptation_refuses_invalid_settings(tmp_path):
    how = {"steps": 4 * ALL * ENVS, "envs": ENVS, "evaluate_episodes": 0}
    with pytest.raises(sterling.Mistake, match=r"levels that it draws itself.* Leave out sources"):
        sterling.train("maml", "maze:3x3", sources="plr", **how)
    for number, (old, new, said) in enumerate(
        (
            ("adapt=9", "adapt=0", r"Let needs return Rollouts\(length, adapt=N\)"),
            ("adapt=9", "adapt=16", "between 1 and length - 1"),
            (ROLLOUTS, 'Needs(16, (Feed("fresh"), Feed(name="x")), adapt=9)', "its only feed"),
            (ROLLOUTS, 'Needs(16, (Feed("episodes"),), adapt=9)', "which do not adapt"),
            ("def adapt", "def adopt", r"lacks adapt\(state, batch, key\)"),
        )
    ):
        path = tmp_path / f"tries_{number}.py"
        path.write_text(ALGORITHM.replace(old, new))
        with pytest.raises(sterling.Mistake, match=said):
            sterling.train(str(path), "probe:levels-hidden", **how)
