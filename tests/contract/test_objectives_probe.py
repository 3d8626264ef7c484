"""The probe world of two objectives: the right choice for every preference, and each objective's
known number in rows and results, judged in its own direction."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES
from test_probes import actions

import sterling
from sterling.envs.probes.objectives_probe import BEST_MEANS, make_objectives_probe
from sterling.experience import acting
from sterling.report.runs.read_runs import read_results
from sterling.report.runs.run_groups import group_results

# Not listed: mbpo and pebble, whose models are of vectors alone; openes, whose members have a
# preference each and are compared as if it were the same; td3, one of whose actors of such a small
# size stays constant, at the best action for no preference.
NAMES = ("ppo", "recurrent-ppo", "dqn", "r2d2", "sac")
QUICK = {("ppo", "objectives-continuous")}


def runs():
    for name in NAMES:
        for form in CASES[name].spaces:
            run = (name, f"objectives{form}")
            yield pytest.param(*run, marks=() if run in QUICK else (pytest.mark.slow,))


def values(run, world, obs):
    """What each seed expects of observations in which an episode begins, ``(seed, row)``."""
    algorithm, state, rows = run.agent.algorithm, run.agent.state, len(obs["preference"])
    start = jax.random.split(jax.random.key(0), 2)
    past = acting.initial_past(run.agent, run.world().spec, (2, rows), start)
    if past is None:
        return jax.vmap(lambda state: algorithm.value(state, obs))(state)
    return jax.vmap(algorithm.value, in_axes=(0, 0, None, 0))(state, past, obs, start)


@pytest.mark.parametrize(("name", "world"), list(runs()))
def test_objectives_probe_is_solved_for_every_preference(name, world, tmp_path):
    case, folder = CASES[name], tmp_path / "run"
    run = sterling.train(
        name, f"probe:{world}", steps=case.steps, envs=case.envs, seeds=2, evaluate_episodes=400,
        preset=False, out=folder, log_every=case.steps // 20, **case.fields,
    )  # fmt: skip
    answers = make_objectives_probe(world).answers()
    if hasattr(run.agent.algorithm, "value"):
        found = values(run, world, jax.tree.map(jnp.asarray, answers.obs))
        np.testing.assert_allclose(found, [answers.value] * 2, atol=0.1)
    action = [np.ravel(list(actions(run.player(seed), answers.obs))) for seed in (0, 1)]
    np.testing.assert_allclose(action, [answers.action] * 2, atol=0.2)
    result = json.loads((folder / "result.json").read_text())
    rows = [json.loads(row) for row in (folder / "metrics.jsonl").read_text().splitlines()[-5:]]
    for column, best in BEST_MEANS.items():
        final = result["final"][column]["per_seed"]
        np.testing.assert_allclose(final, best, atol=0.08, err_msg=column)
        if name in ("ppo", "dqn"):  # who hardly explores at the end
            late = [row[f"data/{column}"] for row in rows]
            np.testing.assert_allclose(np.mean(late, 0), best, atol=0.1, err_msg=column)
    declared = {name: each["better"] for name, each in result["channels"].items()}
    assert declared == {"objectives.gain": 1, "objectives.cost": -1}
    for column, better in declared.items():
        assert [
            group.better for group in group_results(read_results([folder], column)[0], None)[0]
        ] == [better]
