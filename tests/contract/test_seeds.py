"""Seeds alone equal seeds together, exactly under `map`; a run that was stopped by a signal, saved
and resumed equals an uninterrupted one, bit for bit. Every algorithm; in ``make test`` one that
learns from a replay (quick_cases.json): tests/training/test_scheduled_runs.py holds it of PPO.

Both are asked of one trained run, whose program is compiled once. What a fresh process makes of a
run that was killed is in ``test_resume.py``.
"""

import jax
import numpy as np
import pytest
from cases import CASES, each
from stopping import Stop, leaves

import sterling
from sterling.algorithms import find

KINDS = {  # of what runs learn from and keep; make test runs some of them, test-all every algorithm
    "ppo": "rollouts, compiled with the world",
    "recurrent-ppo": "and a memory that goes on from one to the next",
    "maml": "rollouts before and after every env has adapted",
    "openes": "whole episodes of members with settings of their own",
    "dqn": "a replay, and a target network",
    "mbpo": "and dreams of learned models, in a replay of their own",
    "iql": "a log",
}
RUNS = [
    pytest.param((case.name, case.spaces[-1]), marks=() if case.name in KINDS else pytest.mark.slow)
    for case in CASES.values()
]
ITERATIONS = 100  # after what an algorithm does at random first
ROW = 30  # iterations between two rows of metrics


def train(run, seeds, folder, *, iterations=ITERATIONS, **options):
    """A run of an algorithm on a world of one kind of actions; logs lie in ``folder``."""
    name, form = run
    case = CASES[name]
    needs = find(name).needs(find(name).Config(**case.fields))
    one = (needs.collect if needs.lives else 1) * case.envs  # steps of an iteration
    steps = case.fields.get("warmup", 0) + one * iterations
    budget = case.budget(case.kind + form, steps, folder)
    how = {"seeds": seeds, "envs": case.envs, "strategy": "map", "evaluate_episodes": 0}
    how |= {"log_every": ROW * one if case.steps else ROW, "preset": False}
    return sterling.train(
        name, f"probe:{case.kind}{form}", **{**how, **budget, **smaller(case), **options}
    )


def smaller(case):
    """Its settings, and networks of one layer, which take less time to compile."""
    narrow = {"width": 8}
    own = {"dt": {"layers": 1}, "r2d2": narrow, "recurrent-ppo": narrow}
    own |= {"simba": {}, "simba-v2": {}}
    own |= {"bro": {"resets": (430, 900)}}  # before it is stopped, and after
    one = own.get(case.name, {"depth": 1})
    return {**case.fields, **one}


@pytest.fixture(scope="module", params=RUNS, ids="".join)
def together(request, written_logs):
    """Which algorithm it is, and its run of three seeds."""
    return request.param, train(request.param, [0, 1, 2], written_logs)


@pytest.mark.as_users
def test_training_under_map_equals_each_seed_alone_bit_for_bit(together, written_logs):
    run, several = together
    alone = train(run, [1], written_logs)
    for many, one in zip(leaves(several), leaves(alone), strict=True):
        np.testing.assert_array_equal(many[1], one[0])


@pytest.mark.as_users
def test_training_stopped_by_a_signal_resumes_bit_for_bit(together, tmp_path, written_logs):
    run, whole = together
    path = tmp_path / "broken"
    with pytest.raises(SystemExit) as left:
        train(run, [0, 1, 2], written_logs, out=path, sinks=[Stop()])
    assert left.value.code == 75
    assert not (path / "result.json").exists()  # it was in the middle
    resumed = sterling.resume(path)
    agents = [jax.tree.leaves(each.agent) for each in (whole, resumed)]
    assert len(agents[0]) == len(agents[1])
    for one, other in zip(*agents, strict=True):
        np.testing.assert_array_equal(_plain(one), _plain(other))


def _plain(leaf):
    """A leaf as numbers; keys of randomness by their data."""
    keyed = hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if keyed else leaf)


@pytest.mark.parametrize(("name", "form"), each("ppo"))
def test_training_under_vmap_is_close_to_each_seed_alone(name, form, written_logs):
    # crossq divides by deviations of batches, so rounding grows from update to update
    few = {"iterations": {"ppo": 3, "crossq": 8}.get(name, 48)}
    together = train((name, form), [0, 1], written_logs, strategy="vmap", **few).agent.state
    alone = train((name, form), [1], written_logs, **few).agent.state
    for many, one in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(
            np.asarray(many, np.float64)[1], np.asarray(one, np.float64)[0], rtol=2e-3, atol=2e-3
        )
