"""Training from a log, from a log and then in the world, and on both at once."""

import json
import shutil
import types

import jax
import logs
import numpy as np
import pytest

import sterling
from sterling.data import Dataset
from sterling.training.assembly import run_dataset
from sterling.training.assembly.build_run import build_first_phase
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.run_options import Guidance
from sterling.training.driver import Driver
from sterling.training.phases.phase_change import enter_phase
from sterling.training.phases.phase_sequence import plan_phases
from sterling.types import Mistake

WORLD = "probe:both-continuous"
SEEN = np.ones(1, np.float32)
SMALL = {"width": 16, "batch": 32, "lr": 3e-3, "gamma": 0.8}


@pytest.fixture(name="data", scope="module")
def _data(tmp_path_factory):
    return logs.write("both-continuous", False, tmp_path_factory.mktemp("logs"))


def rows(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_offline_to_online_run_has_one_folder_and_result(data, tmp_path):
    run = sterling.train(
        "iql", WORLD, data=data, updates=300, steps=400, envs=4, seeds=2, out=tmp_path / "run",
        evaluate_episodes=4, return_within=(-90, 90), **SMALL,
    )  # fmt: skip
    found = rows(tmp_path / "run")
    updates, steps = ([row[name] for row in found] for name in ("update", "step"))
    assert updates == sorted(updates)
    assert (updates[-1], steps[-1]) == (400, 400)  # an update for each round of 4 envs
    assert all(
        row["step"] == 0 and "data/return" not in row for row in found if row["update"] <= 300
    )
    judged = [row["update"] for row in found if "evaluation/return" in row]
    assert 300 in judged  # at the switch
    assert len([u for u in judged if u < 300]) >= 9
    assert len([u for u in judged if u > 300]) >= 8
    switch = run.result["switch"]
    at_switch = next(row for row in found if row["update"] == 300)["evaluation/return"]
    assert switch["before"]["per_seed"] == at_switch
    within = [tuple(switch[each]["within"]) for each in ("before", "lowest", "dip")]
    assert within == [(-90, 90), (-90, 90), (0, 180)]
    later = [
        row["evaluation/return"]
        for row in found
        if row["update"] > 300 and "evaluation/return" in row
    ]
    np.testing.assert_allclose(switch["lowest"]["per_seed"], np.min(later, 0))
    assert (tmp_path / "run" / "curve.png").exists()
    again = sterling.load(tmp_path / "run")
    np.testing.assert_array_equal(again.policy(SEEN), run.policy(SEEN))


def test_online_phase_metric_rows_are_counted_from_the_switch(data):
    """By hand: a row every 20 steps of 4 environments is one every 5 rounds, from the 7th on."""
    settings = resolve_settings(
        "iql", WORLD, data=run_dataset.make_log_settings(data), updates=7, steps=400, envs=4,
        log_every=20, evaluate_episodes=0,
    )  # fmt: skip
    driver = object.__new__(Driver)  # only what it counts by, no agents
    driver.settings, driver.parts = settings, plan_phases(settings)
    for phase, iteration, left in ((0, 0, 20), (0, 3, 17), (1, 7, 5), (1, 9, 3), (1, 12, 5)):
        driver.phase, driver.run = phase, types.SimpleNamespace(iteration=iteration)
        assert driver._iterations_to_row() == left


@pytest.mark.slow
def test_offline_updates_per_second_count_all_seeds(data):
    few = {"updates": 40, "seeds": 3, "width": 8, "batch": 8, "evaluate_episodes": 0}
    result = sterling.train("bc", WORLD, data=data, **few).result
    found = result["updates_per_second"] * result["wall_seconds"]
    assert found == pytest.approx(3 * 40, rel=0.01)


@pytest.mark.slow
def test_online_fields_take_effect_when_the_online_phase_starts(data, tmp_path):
    run = sterling.train(
        "td3bc", WORLD, data=data, updates=20, steps=40, envs=4, evaluate_episodes=0,
        online={"alpha": 7.0}, **SMALL,
    )  # fmt: skip
    assert float(run.agent.state.config.alpha[0]) == 7.0
    assert float(run.agent.state.config.lr[0]) == pytest.approx(3e-3)


@pytest.mark.parametrize(
    ("algorithm", "fixed", "online", "expected"),
    [
        ("sac", {"n_step": 3}, {"gamma": 0.5}, {"gamma": 0.5}),
        ("sac", {"priority": 0.6}, {"correction": 0.9}, {"correction": 0.9}),
        ("cql", {"calibrated": True}, {"gamma": 0.5}, {"monte_carlo": 0.5}),
    ],
)
def test_replay_and_dataset_sources_use_the_online_phase_fields(
    algorithm, fixed, online, expected, data
):
    """Sums of rewards, importance weights and returns belong to the loss that has these numbers."""
    settings = resolve_settings(
        algorithm, WORLD, data=run_dataset.make_log_settings(data, share=0.5), updates=20,
        steps=80, envs=4, online=online,
        fields={"width": 16, "batch": 8, "capacity": 400, "warmup": 0, **fixed},
    )  # fmt: skip
    before = build_first_phase(settings)
    after = enter_phase(plan_phases(settings)[1], before, warm=False)
    logged, lived = after.source.sources
    for name, value in expected.items():
        first, own, fresh = (each.needs.feeds[0] for each in (before.source, logged, lived))
        assert getattr(first, name) != value
        assert (getattr(own, name), getattr(fresh, name)) == (value, value)
    if "correction" in expected:
        assert lived.priorities.correction == 0.9


@pytest.mark.slow
def test_sac_learns_from_a_mixture_of_dataset_and_replay(data):
    run = sterling.train(
        "sac", WORLD, data=data, steps=2_400, envs=8, share=0.5, warmup=80, evaluate_episodes=8,
        priority=0.6, n_step=2, **SMALL,
    )  # fmt: skip
    assert run.result["final"]["return"]["estimate"] > 0.95
    assert run.result["updates"] == 290


def test_dataset_is_needed_to_resume_but_not_to_load(data, tmp_path):
    moved = tmp_path / "log"
    shutil.copytree(data, moved)
    sterling.train("bc", WORLD, data=moved, updates=20, out=tmp_path / "run", width=16, batch=8)
    (tmp_path / "run" / "result.json").unlink()
    shutil.rmtree(moved)
    Dataset(data)[:50].save(moved)  # another one under its name
    run_dataset.read_log.cache_clear()  # as in a new process
    run_dataset.read_log_in_world.cache_clear()
    with pytest.raises(Mistake, match="has changed since this run began"):
        sterling.resume(tmp_path / "run")
    shutil.rmtree(moved)
    assert sterling.load(tmp_path / "run").policy(SEEN).shape == (1,)


def test_bc_with_top_trains_on_the_best_episodes_only(data):
    whole = sterling.train("bc", WORLD, data=data, updates=600, width=16, batch=64, lr=3e-3)
    best = sterling.train("bc", WORLD, data=data, updates=600, width=16, batch=64, lr=3e-3, top=0.1)
    scores = [run.result["final"]["return"]["estimate"] for run in (whole, best)]
    np.testing.assert_array_less(scores[0], 0.95)
    np.testing.assert_array_less(0.95, scores[1])


@pytest.mark.parametrize(
    ("algorithm", "options", "words"),
    [
        ("ppo", {"updates": 9}, "ppo learns only from its own experience"),
        ("iql", {}, "iql has no budget\. Give updates=N, steps=N or both"),
        (
            "dt",
            {"updates": 9, "steps": 99},
            "dt learns from datasets only: give updates=N and no steps",
        ),
        ("iql", {"updates": 9, "share": 1.0}, r"share must be at least 0 and below 1; got 1.0"),
        ("iql", {"updates": 9, "sampling": "retrun"}, "did you mean return"),
        (
            "iql",
            {"updates": 9, "sources": "counts"},
            "this run of iql collects nothing",
        ),
        ("sac", {"steps": 99, "sources": "plr"}, "sources=plr needs level of every row"),
        ("iql", {"updates": 9, "online": {"beta": 1.0}}, "online fields need both"),
        ("iql", {"updates": 9, "steps": 9, "online": {"bta": 1.0}}, "did you mean beta"),
        ("fdvl", {"updates": 9, "steps": 9, "online": {"weight": 0.4}}, "needs weight > 0.5"),
        ("iql", {"updates": 9, "environment": "probe:both"}, "the dataset has actions Box"),
        (
            "iql",
            {"updates": 9, "environment": None, "evaluate_episodes": 4},
            r"does not say in which environment it was made, .* --environment ENV .* or set "
            "--evaluate-episodes 0",
        ),
        (
            "iql",
            {"updates": 9, "steps": 9, "environment": None, "evaluate_episodes": 0},
            r"steps need one. Add --environment ENV .*, or leave out --steps",
        ),
        ("sac", {"steps": 99, "guide": Guidance("/none", "jumpstart")}, "did you mean jump-start"),
        (
            "sac",
            {"steps": 99, "guide": Guidance("/none")},
            "jump-start needs the latest step .*: give --guide-steps N",
        ),
    ],
)
def test_wrong_dataset_options_of_train_are_refused(algorithm, options, words, data, tmp_path):
    options = {"environment": WORLD, **options}
    with pytest.raises(Mistake, match=words) as caught:
        sterling.train(algorithm, data=data, out=tmp_path / "run", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_train_refuses_a_dataset_with_nan_rewards(data, tmp_path):
    good = Dataset(data)
    arrays = good.transitions()
    assert arrays.reward.size
    block = next(good.blocks())
    block.arrays["reward"] = block.arrays["reward"].copy()
    block.arrays["reward"][3] = np.nan
    broken = Dataset.from_block(block, good.obs_space, good.action_space).save(tmp_path / "broken")
    with pytest.raises(Mistake, match=r"nan: .*See all with: sterling data check"):
        sterling.train("bc", WORLD, data=broken, updates=9)
    sterling.train(
        "bc", WORLD, data=broken, updates=9, unchecked=True, evaluate_episodes=0, width=8
    )


def test_share_and_updates_options_need_a_dataset():
    with pytest.raises(Mistake, match="share needs a dataset: add data=FILE"):
        sterling.train("sac", WORLD, steps=99, share=0.5)
    with pytest.raises(Mistake, match="add data=FILE"):
        sterling.train("iql", WORLD, updates=99)


class Broken(BaseException):
    """What a power cut is to a run."""


class PowerCut:
    """A sink that ends the run after some rows, as a kill would: nothing is saved any more."""

    def __init__(self, after):
        self.left = after

    def write(self, row):
        self.left -= 1
        if self.left < 0:
            raise Broken

    def close(self):
        """Nothing to release."""


@pytest.mark.slow
@pytest.mark.parametrize("after", [4, 16])  # in the first phase, in the second
def test_offline_and_online_phases_resume_where_they_stopped(after, data, tmp_path):
    fields = {
        **SMALL,
        "updates": 100,
        "steps": 240,
        "warmup": 40,
        "envs": 4,
        "evaluate_episodes": 4,
    }
    fields |= {"log_every": 10, "checkpoint_minutes": 0.0, "online": {"alpha": 1.0}, "seeds": 2}
    whole = sterling.train("td3bc", WORLD, data=data, out=tmp_path / "whole", **fields)
    with pytest.raises(Broken):
        sterling.train(
            "td3bc", WORLD, data=data, out=tmp_path / "cut", sinks=[PowerCut(after)], **fields
        )
    newest = max((tmp_path / "cut" / "checkpoints").iterdir())
    (newest / "meta.json").write_text("{}")  # and the cut damaged what was being written
    again = sterling.resume(tmp_path / "cut")
    for one, other in zip(
        jax.tree.leaves(whole.agent.state), jax.tree.leaves(again.agent.state), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert whole.result["switch"] == again.result["switch"]
    logs_ = [
        [
            {k: v for k, v in row.items() if not k.startswith("time/")}
            for row in rows(tmp_path / name)
        ]
        for name in ("whole", "cut")
    ]
    assert logs_[0] == logs_[1]
