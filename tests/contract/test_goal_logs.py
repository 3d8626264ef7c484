"""Who is asked for goals learns from a log of chance, in which nobody reached a goal, the known
values of the way to any goal, and the first step of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES

import sterling
from sterling.envs.probes.goal_probe import make_goal_probe

GAMMA = 0.8
RUNS = [
    (case.name, form) for case in CASES.values() if case.kind == "goals" for form in case.spaces
]
QUICK = ("gcivl", "")  # the others are fed as it is, and their updates are those of an oracle


@pytest.mark.usefixtures("runs_for_long")
@pytest.mark.parametrize(
    ("name", "form"),
    [run if run == QUICK else pytest.param(*run, marks=pytest.mark.slow) for run in RUNS],
)
def test_the_way_to_any_goal_is_learned_from_chance(name, form, written_logs):
    case = CASES[name]
    budget = case.budget(f"goals{form}", case.updates * case.envs, written_logs)
    run = sterling.train(
        name, f"probe:goals{form}", **budget, seeds=2, evaluate_episodes=0, preset=False,
        log_every=case.updates, **case.fields,
    )  # fmt: skip
    asked = make_goal_probe(f"goals{form}").answers(GAMMA)
    obs = jax.tree.map(jnp.asarray, asked.obs)
    algorithm, state = run.agent.algorithm, run.agent.state
    if hasattr(algorithm, "value"):
        value = jax.vmap(lambda state: algorithm.value(state, obs))(state)
        steps = np.abs(asked.obs["desired_goal"] - asked.obs["observation"])[:, 1]
        expected = -(1.0 - GAMMA**steps) / (1.0 - GAMMA)
        if name == "qrl":  # not discounted, and each step as long as is allowed
            expected = -steps * (1.0 + algorithm.Config().eps ** 0.5)
        np.testing.assert_allclose(value, np.stack([expected] * 2), atol=0.3)
    action = jax.vmap(lambda state: algorithm.act(state, obs, jax.random.key(0), False)[0])(state)
    right = np.asarray(action)[..., 0] > 0.0 if form else np.asarray(action) == 1
    np.testing.assert_array_equal(right, [asked.right] * 2)
