"""Bounds of returns and the rule for failed seeds, from the call to the result."""

import pytest

import sterling
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.settings import Settings
from sterling.training.evaluation.final_estimate import final_estimate
from sterling.training.processes.merge_results import merge_results
from sterling.training.trained_run import run_return_bounds
from sterling.types import Mistake

PPO = {"length": 16, "epochs": 1, "minibatch": 64}


def test_return_bounds_come_from_the_environment_unless_options_change_it():
    assert run_return_bounds(resolve_settings("ppo", "CartPole-v1", steps=4_096)) == (0, 500)
    longer = {"max_episode_steps": 1_000}
    assert (
        run_return_bounds(resolve_settings("ppo", "CartPole-v1", steps=4_096, env_options=longer))
        is None
    )
    own = {"env_options": longer, "return_within": (0, 1_000)}
    assert run_return_bounds(resolve_settings("ppo", "CartPole-v1", steps=4_096, **own)) == (
        0,
        1_000,
    )


def test_return_bounds_and_failed_rule_are_stored_in_settings():
    made = resolve_settings(
        "ppo", "CartPole-v1", steps=4_096, return_within=(None, 3), failed="worst"
    )
    plain = made.to_json()
    assert Settings.from_json({**plain, "return_within": [None, 3]}) == made
    for name in ("return_within", "failed"):
        plain.pop(name)  # a run from before
    assert Settings.from_json(plain).failed is None
    with pytest.raises(Mistake, match="failed must be a finite number"):
        resolve_settings("ppo", "CartPole-v1", steps=4_096, failed="zero")
    with pytest.raises(Mistake, match="must lie below"):
        resolve_settings("ppo", "CartPole-v1", steps=4_096, return_within=(5, 0))


def test_final_estimate_is_none_where_seeds_failed():
    made = final_estimate([900.0, 950.0, 1.0, 2.0, 3.0], range(5), [2, 3, 4], (0, 1000))
    assert made["per_seed"] == [900.0, 950.0, None, None, None]
    assert made["estimate"] is None
    assert (made["failed"], made["n"]) == (3, 2)
    assert made["survivors"]["value"] == 925.0
    assert made["at_worst"]["value"] == 370.0
    assert final_estimate([1.0, 2.0], range(2), [1], failed=0.0)["estimate"] == 0.5


def test_return_bound_that_a_score_exceeds_is_dropped_with_a_warning(capsys):
    made = final_estimate([3.0, 501.0], range(2), [], (0, 500))
    assert made["method"].endswith("declared upper bound 500 dropped: a score is 501")
    assert capsys.readouterr().err.count("declared upper bound 500 dropped") == 1


def test_merged_seed_processes_follow_the_failed_seed_rule():
    def part(seed, score, lost):
        return {
            "seeds": [seed],
            "steps": 8,
            "final": {"return": final_estimate([score], [seed], lost, (0, 10))},
            "failed_seeds": lost,
            "failures": {},
            "world_failures": [],
            "wall_seconds": 1.0,
        }

    parts = [part(0, 6.0, []), part(1, 8.0, []), part(2, 9.0, [2])]
    made = merge_results(parts, 1, 2.0, (0, 10))["final"]["return"]
    assert (made["estimate"], made["survivors"]["value"]) == (None, 7.0)
    worst = merge_results(parts, 1, 2.0, (0, 10), "worst")["final"]["return"]
    assert worst["estimate"] == pytest.approx(14 / 3)


def test_run_keeps_its_declared_return_bounds(tmp_path):
    run = sterling.train(
        "ppo",
        "probe:both",
        steps=256,
        seeds=2,
        out=tmp_path / "run",
        evaluate_episodes=4,
        envs=8,
        return_within=(-2, 1),
        **PPO,
    )
    assert run.result["final"]["return"]["within"] == [-2, 1]
    assert sterling.load(tmp_path / "run").settings.return_within == (-2, 1)
    other = run.evaluate(4, return_within=(-5, 5))["return"]
    assert other["within"] == [-5, 5]
