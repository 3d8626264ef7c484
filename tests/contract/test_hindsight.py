"""Who takes what was achieved for what was wanted finds the known values of a world in which
nothing else teaches; a seed alone is as among others, and resumed bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES

import sterling
from sterling.envs.goal_probe import goal_probe

GAMMA = 0.8


def solved(run, world):
    """Whether each seed's values and actions are those that are known."""
    asked = goal_probe(world).asked(GAMMA)
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


def probed(name, world, hindsight, steps):
    case = CASES[name]
    return sterling.train(
        name, f"probe:{world}", steps=steps, seeds=2, envs=case.envs, evaluate_episodes=0,
        preset=False, hindsight=hindsight, **{**case.fields, "gamma": GAMMA},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "world", "steps"),
    [
        ("dqn", "goals", 24_000),
        pytest.param("sac", "goals-continuous", 24_000, marks=pytest.mark.slow),
        pytest.param("td3", "goals-continuous", 24_000, marks=pytest.mark.slow),
    ],
)
def test_what_was_achieved_teaches_what_was_never_wanted(name, world, steps):
    assert solved(probed(name, world, "future", steps), world).all()


@pytest.mark.slow
def test_without_hindsight_it_cannot_be_known():
    assert not solved(probed("dqn", "goals", "", 12_000), "goals").any()
