"""HIQL of examples/methods, and its point maze: ways, an update, a resumed run, what is reached."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling.lookup import user_imports
from sterling.types import Later, Record, Spec

EXAMPLES = Path(__file__).parents[2] / "examples"
HIQL, MAZE = EXAMPLES / "methods/hiql.py", EXAMPLES / "worlds/point_maze.py"
SMALL = {"width": 8, "batch": 8, "seeds": [1], "evaluate_episodes": 0, "quiet": True}


@pytest.fixture(name="world", scope="module")
def _world():
    return user_imports.load(str(MAZE))


@pytest.fixture(name="hiql", scope="module")
def _hiql():
    return user_imports.load(str(HIQL))


def test_the_shortest_way_in_the_maze_leads_round_its_walls(world):
    """From the blind end in the middle to the room below it, two cells on, are ten moves; each move
    of the table is one nearer."""
    number = {tuple(cell): k for k, cell in enumerate(world.FREE.tolist())}
    assert world.WAYS[number[3, 3], number[5, 3]] == 10
    here, goal = np.indices(world.WAYS.shape)
    nearer = world.WAYS[world.NEXT, goal]
    np.testing.assert_array_equal(nearer, np.maximum(world.WAYS - 1, 0))
    assert world.WAYS[here, world.NEXT].max() == 1


def test_hiqls_way_points_lie_on_the_way_to_the_high_policys_goal(hiql):
    """In its loss, at most at the goal; the low policy's are any so many steps later."""
    (feed,) = hiql.needs(hiql.Config(ahead=7, anywhere=0.25)).feeds
    law = {each.name: each.law for each in feed.beside}
    assert law["near"] == Later(7)
    assert law["way"] == Later(7, not_after="wanted")
    assert law["wanted"].share == (0.0, 0.75, 0.25)


def rows(hiql, world, count=16):
    """Rows ``(count,)`` in the maze, with others beside them."""
    own = jax.random.uniform(jax.random.key(3), (5, count, 2), minval=-1.0, maxval=1.0)

    def record(place):
        obs = {name: place for name in world.Maze.obs.spaces}
        ones, no = jnp.ones(count), jnp.zeros(count, bool)
        return Record(obs, place, 0.0 * ones, ones, obs, no, ~no)

    names = [each.name for each in hiql.needs(hiql.Config()).feeds[0].beside]
    beside = {name: record(place) for name, place in zip(names, own[1:], strict=True)}
    steps = {"steps": jnp.arange(count, dtype=jnp.int32) - 1}  # -1: any row; 0: the row itself
    beside["goal"] = dataclasses.replace(beside["goal"], extras=steps)
    return dataclasses.replace(record(own[0]), beside=beside)


@pytest.fixture(name="agent", scope="module")
def _agent(hiql, world):
    """A new agent, a batch, and one compiled update."""
    spec = Spec(world.Maze.obs, world.Maze.action)
    state = hiql.init(jax.random.key(0), spec, hiql.Config(width=8, numbers=3))
    learn = jax.jit(lambda batch: hiql.learn(state, batch, jax.random.key(1)))
    return state, rows(hiql, world), learn


def test_each_network_of_hiql_learns_from_rows_of_its_own(agent):
    """Values from goals, the low policy from way points, the high one from its own goals, too."""
    _, batch, learn = agent
    first = learn(batch)[0]

    def changed(name):
        nowhere = jax.tree.map(jnp.zeros_like, batch.beside[name].obs)
        other = dataclasses.replace(batch.beside[name], obs=nowhere)
        batch_of = dataclasses.replace(batch, beside={**batch.beside, name: other})
        parts = [(x.values, *x.policies) for x in (first, learn(batch_of)[0])]
        return [not same(*both) for both in zip(*parts, strict=True)]

    assert changed("goal") == [True, False, False]
    assert changed("near") == [False, True, False]
    assert changed("wanted") == [False, False, True]
    assert changed("way") == [False, False, True]


def same(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(bool((x == y).all()) for x, y in pairs)


def test_hiqls_values_follow_minus_one_a_step_but_0_in_the_goal_itself(agent):
    """Its loss by hand, while target networks are copies."""
    state, batch, learn = agent
    goal = batch.beside["goal"].obs["achieved_goal"]
    now, after = (np.array(state.values(x, goal)) for x in (batch.obs, batch.next_obs))
    there = np.array(batch.beside["goal"].extras["steps"]) == 0
    assert there.sum() == 1
    target = np.where(there, 0.0, -1.0 + 0.98 * after)
    advantage = target.min(0) - now.mean(0)
    weight = np.where(advantage < 0, 0.3, 0.7)
    loss = (weight * np.square(target - now).sum(0)).mean()
    np.testing.assert_allclose(learn(batch)[1].metrics["loss/v"], loss, rtol=1e-4)


@pytest.fixture(name="log", scope="module")
def _log(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("log") / "maze"
    world.play(20, 0).save(folder)
    return folder


@pytest.mark.slow
def test_hiql_resumed_learns_as_uninterrupted(log, tmp_path):
    how = {"data": log, **SMALL}
    short = sterling.train(HIQL, updates=3, out=tmp_path / "run", **how)
    whole = sterling.train(HIQL, updates=6, out=tmp_path / "whole", **how)
    resumed = sterling.resume(short.path, updates=6, quiet=True)
    for one, other in zip(
        *(jax.tree.leaves(run.agent.state) for run in (resumed, whole)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_hiql_reaches_goals_that_a_random_policy_does_not(world, tmp_path):
    """Random actions reach 1 in 200; after 20,000 updates three seeds reached 0.90 to 0.945."""
    world.play(1_000, 0).save(tmp_path / "maze")
    how = {"data": tmp_path / "maze", "updates": 4_000, "seeds": [1], "quiet": True}
    run = sterling.train(HIQL, evaluate_episodes=50, **how)
    assert min(run.result["final"]["return"]["per_seed"]) > 0.3
