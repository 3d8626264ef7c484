"""Who takes what was achieved for what was wanted finds the known values of a world in which
nothing else teaches; a seed alone is as among others, and resumed bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES
from stopping import Stop, leaves, newest

import sterling
from sterling.envs.probes.goal_probe import make_goal_probe

GAMMA = 0.8


def solved(run, world):
    """Whether each seed's values and actions are those that are known."""
    asked = make_goal_probe(world).answers(GAMMA)
    obs = jax.tree.map(jnp.asarray, asked.obs)
    algorithm, state = run.agent.algorithm, run.agent.state
    found = []
    if hasattr(algorithm, "value"):
        value = np.asarray(jax.vmap(lambda state: algorithm.value(state, obs))(state))
        found.append(np.abs(value - asked.value).max(1) < 0.1)
    action = jax.vmap(lambda state: algorithm.act(state, obs, jax.random.key(0), False)[0])(state)
    right = np.asarray(action)[..., 0] > 0.0 if world.endswith("continuous") else action == 1
    found.append((np.asarray(right) == asked.right).all(1))
    return np.all(found, 0)


EXPLORING = {"dqn": {"exploration_final": 1.0}, "td3": {"exploration_noise": 1.0}}  # both sides


def probed(name, world, hindsight, steps):
    case = CASES[name]
    fields = {**case.fields, "gamma": GAMMA, **EXPLORING.get(name, {})}
    return sterling.train(
        name, f"probe:{world}", steps=steps, seeds=2, envs=case.envs, evaluate_episodes=0,
        preset=False, hindsight=hindsight, **fields,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "world", "steps"),
    [
        ("dqn", "goals", 12_000),
        ("sac", "goals-continuous", 12_000),
        ("td3", "goals-continuous", 24_000),
    ],
)
def test_hindsight_relabelling_solves_the_goal_probe(name, world, steps):
    assert solved(probed(name, world, "future", steps), world).all()


@pytest.mark.slow
def test_goal_probe_is_unsolved_without_hindsight():
    assert not solved(probed("dqn", "goals", "", 12_000), "goals").any()


RUN = {"warmup": 100, "batch": 16, "capacity": 3000, "priority": 0.6, "n_step": 2, "width": 8}
RUN |= {"envs": 2, "steps": 1500, "depth": 1, "log_every": 300}


def run(seeds, **options):
    how = {"strategy": "map", "evaluate_episodes": 0, "preset": False, **RUN, **options}
    return sterling.train("dqn", "flip:4", seeds=seeds, hindsight="future", **how)


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    path = tmp_path_factory.mktemp("hindsight") / "whole"
    return path, run([0, 1, 2], out=path)


@pytest.mark.as_users
@pytest.mark.slow
def test_hindsight_run_of_a_seed_is_independent_of_other_seeds(together):
    for many, one in zip(leaves(together[1]), leaves(run([1])), strict=True):
        np.testing.assert_array_equal(many[1], one[0])


@pytest.mark.as_users
@pytest.mark.slow
def test_hindsight_run_resumes_bit_for_bit(together, tmp_path):
    whole, path = together[0], tmp_path / "broken"
    with pytest.raises(SystemExit):
        run([0, 1, 2], out=path, sinks=[Stop()])
    for one, other in zip(leaves(together[1]), leaves(sterling.resume(path)), strict=True):
        np.testing.assert_array_equal(one, other)
    found = [kept(each) for each in (whole, path)]
    assert len(found[0]) == 2
    for name, index in found[0].items():
        assert index.max() == (3 if name.endswith("elapsed") else 4)
        np.testing.assert_array_equal(index, found[1][name])


def kept(path):
    """The index of episodes in the newest checkpoint."""
    return {name: each for name, each in newest(path).items() if "relabel/index/" in name}
