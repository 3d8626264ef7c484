"""Seeds alone equal seeds together, exactly under `map`."""

import jax
import numpy as np
import pytest
from cases import CASES, each

import sterling

RUNS = [(case.name, case.spaces[-1]) for case in CASES.values()]


def train(name, world, seeds, strategy, steps, folder):  # noqa: PLR0917
    case = CASES[name]
    return sterling.train(
        name,
        f"probe:{world}",
        **case.budget(world, steps, folder),
        seeds=seeds,
        envs=case.envs,
        strategy=strategy,
        evaluate_episodes=0,
        preset=False,
        **case.fields,
    )


@pytest.mark.as_users
@pytest.mark.parametrize(("name", "form"), RUNS)
def test_map_is_bit_equal_to_each_seed_alone(name, form, written_logs):
    together = train(name, "both" + form, [0, 1, 2], "map", 1200, written_logs).agent.state
    alone = train(name, "both" + form, [1], "map", 1200, written_logs).agent.state
    for many, one in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_array_equal(np.asarray(many)[1], np.asarray(one)[0])


@pytest.mark.parametrize(("name", "form"), each("ppo", "iql"))
def test_vmap_is_close_over_a_few_updates(name, form, written_logs):
    steps = CASES[name].fields.get("warmup", 0) + 3 * 16 * CASES[name].envs
    together = train(name, "both" + form, [0, 1], "vmap", steps, written_logs).agent.state
    alone = train(name, "both" + form, [1], "map", steps, written_logs).agent.state
    for many, one in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(
            np.asarray(many, np.float64)[1], np.asarray(one, np.float64)[0], rtol=2e-3, atol=2e-3
        )
