"""Configurations x seeds as one program: each member is what it would be alone."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling.training import loop
from sterling.training.assembly.build_run import build_first_phase
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.loop import Run, advance
from sterling.training.saving import checkpoint
from sterling.tuning.jobs import member_axis
from sterling.tuning.jobs.job_pool import split_into_pieces
from sterling.tuning.jobs.parallel_trials import JobRunner, StudyPlan, StudyStopped
from sterling.tuning.searchers.searchers import Job
from sterling.types import Mistake

SMALL = {"length": 8, "minibatch": 32, "epochs": 1, "width": 8}
REPLAY = {"width": 8, "capacity": 500, "warmup": 32, "batch": 8, "collect": 4}
STEPS = 512


def settings(algorithm="ppo", environment="probe:both", **fields):
    small = SMALL if algorithm == "ppo" else REPLAY
    return resolve_settings(
        algorithm, environment, steps=STEPS, preset=False, fields={**small, **fields}, log_every=64
    )


def alone(base, seed, fields, iterations):
    """The same configuration and seed in a run of its own, by the ordinary means."""
    one = dataclasses.replace(member_axis.with_config_fields(base, fields), seeds=(seed,))
    return advance(build_first_phase(one), iterations)[0]


def assert_same(tree, other):
    for x, y in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def saved(plan, trial, step, like, count=1):
    """One trial's stored state."""
    return checkpoint.load(plan.state(trial, step), member_axis.stored_template(like, count))[0]


@pytest.mark.slow  # test_exploiting... holds DQN's against the same training alone
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_trial_member_equals_the_same_training_alone_bit_for_bit(algorithm, tmp_path):
    base = settings(algorithm)
    plan = StudyPlan(base, "last", tmp_path)
    fields = [{"lr": 1e-4, "gamma": 0.9}, {"lr": 3e-2, "gamma": 0.97}]
    jobs = [Job(i, i, each, 0, STEPS, True, None, (7, 0)) for i, each in enumerate(fields)]
    lines = JobRunner(plan).run(jobs)
    total = member_axis.program_key(base)[2]
    for i, own in enumerate(fields):
        for place, seed in enumerate((7, 0)):
            run = alone(base, seed, own, total)
            kept = saved(plan, i, STEPS, run, 2)
            assert_same(
                member_axis.stored_members(kept, slice(place, place + 1)).agent.state,
                run.agent.state,
            )
    assert lines[0]["returns"] != lines[1]["returns"]
    assert lines[0]["cost"]["steps"] >= 2 * (STEPS - base.envs * 8)


def test_trial_logs_the_same_returns_as_train(tmp_path):
    lines = JobRunner(StudyPlan(settings(), "last", tmp_path)).run(
        [Job(0, 0, {"lr": 3e-2}, 0, STEPS, seeds=(0, 1))]
    )
    rows = []
    sink = type("Sink", (), {"write": lambda self, row: rows.append(row), "close": lambda _: None})
    sterling.train(
        "ppo", "probe:both", steps=STEPS, seeds=2, lr=3e-2, preset=False, log_every=64,
        evaluate_episodes=0, sinks=[sink()], **SMALL,
    )  # fmt: skip
    logged = zip(*(row["data/return"] for row in rows), strict=True)
    assert lines[0]["returns"] == [list(each) for each in logged]


@pytest.mark.slow
def test_population_exploit_copies_the_better_member_only(tmp_path):
    base = settings("dqn")
    plan, half = StudyPlan(base, "last", tmp_path), STEPS // 2
    lanes = JobRunner(plan)
    fields = [{"lr": 1e-4}, {"lr": 3e-2}, {"lr": 1e-3}]
    seeds = (3, 4)
    lanes.run([Job(i, i, each, 0, half, True, None, seeds) for i, each in enumerate(fields)])
    before = loop.compiled_advance().jitted._cache_size()
    lanes.run(
        [
            Job(3, 0, {"lr": 2e-2}, half, STEPS, True, 1, seeds),  # copies trial 1
            Job(4, 1, fields[1], half, STEPS, True, None, seeds),
            Job(5, 2, fields[2], half, STEPS, True, None, seeds),
        ]
    )
    assert loop.compiled_advance().jitted._cache_size() == before  # the same program goes on
    total = member_axis.program_key(base)[2]
    middle = round(total * half / STEPS)
    like = alone(base, 3, fields[1], 0)
    for trial in (1, 2):  # as if nothing had happened beside them
        whole = saved(plan, trial, STEPS, like, 2)
        for place, seed in enumerate(seeds):
            run = alone(base, seed, fields[trial], total)
            mine = member_axis.stored_members(whole, slice(place, place + 1))
            assert_same(mine.agent.state, run.agent.state)
            assert_same(mine.source.ring, run.source.ring)
            assert_same(mine.source.source.state, run.source.source.state)
    loser, winner = (alone(base, 3, fields[trial], middle) for trial in (0, 1))
    state = eqx.tree_at(
        lambda s: s.config,
        winner.agent.state,
        member_axis.stack_configs([members_config(base, 2e-2)], [1]),
    )
    agent = eqx.tree_at(lambda a: a.state, winner.agent, state)
    by_hand, _ = advance(
        Run(agent, grafted(loser.source, winner.source), loser.seeds, loser.iteration),
        total - middle,
    )
    copy = member_axis.stored_members(saved(plan, 0, STEPS, like, 2), slice(0, 1))
    assert_same(copy.agent.state, by_hand.agent.state)


def members_config(base, lr):
    return member_axis.with_config_fields(base, {"lr": lr}).config


def grafted(leaves_of, shaped_like):
    """One tree's leaves in another's structure (whose world is that of its agent's program)."""
    return jax.tree.unflatten(jax.tree.structure(shaped_like), jax.tree.leaves(leaves_of))


def test_trial_run_in_two_parts_equals_one_run(tmp_path):
    base = settings("dqn")
    plan, half = StudyPlan(base, "last", tmp_path), 273  # where a row ends
    lanes = JobRunner(plan)
    whole = lanes.run([Job(0, 0, {"lr": 1e-2}, 0, STEPS, True, None, (5,))])
    first = lanes.run([Job(1, 1, {"lr": 1e-2}, 0, half, True, None, (5,))])
    second = JobRunner(plan).run([Job(2, 1, {"lr": 1e-2}, half, STEPS, True, None, (5,))])
    assert first[0]["returns"][0] + second[0]["returns"][0] == whole[0]["returns"][0]
    like = alone(base, 5, {}, 0)
    one, other = (saved(plan, trial, STEPS, like) for trial in (0, 1))
    assert_same((one.agent, one.source), (other.agent, other.source))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "environment"),
    [("sac", "Pendulum-v1"), ("td3", "Pendulum-v1")],
)
def test_every_algorithm_trains_as_population_members(algorithm, environment, tmp_path):
    base = resolve_settings(
        algorithm, environment, steps=200, preset=False,
        fields={"width": 8, "capacity": 300, "warmup": 32, "batch": 8}, log_every=200,
    )  # fmt: skip
    plan, fields = StudyPlan(base, "last", tmp_path), [{"lr": 1e-4}, {"lr": 1e-2}]
    jobs = [Job(i, i, each, 0, 200, True, None, (0,)) for i, each in enumerate(fields)]
    assert len(JobRunner(plan).run(jobs)) == 2
    runs = [alone(base, 0, each, member_axis.program_key(base)[2]) for each in fields]
    for i, run in enumerate(runs):
        pair = saved(plan, i, 200, run).agent.state.target, run.agent.state.target
        for x, y in zip(*map(jax.tree.leaves, pair), strict=True):
            np.testing.assert_allclose(x, y, rtol=0.02, atol=2e-3)  # another program rounds apart
    weights = [jax.tree.leaves(run.agent.state.target) for run in runs]
    assert not all(np.array_equal(x, y) for x, y in zip(*weights, strict=True))


def test_trials_share_a_compiled_program_unless_shapes_differ():
    base = settings("dqn")
    same = [
        member_axis.program_key(member_axis.with_config_fields(base, f))
        for f in ({"lr": 1.0}, {"gamma": 0.5})
    ]
    assert same[0] == same[1] == member_axis.program_key(base)
    assert member_axis.program_key(member_axis.with_config_fields(base, {"width": 16})) != same[0]
    several = settings("dqn", n_step=3)  # where gamma shapes the samples
    other = member_axis.with_config_fields(several, {"gamma": 0.5})
    assert member_axis.program_key(other) != member_axis.program_key(several)


def test_member_axis_repeats_config_numbers_for_every_seed():
    configs = [members_config(settings(), lr) for lr in (0.1, 0.2)]
    made = member_axis.stack_configs(configs, [2, 3])
    np.testing.assert_array_equal(made.lr, np.float32([0.1, 0.1, 0.2, 0.2, 0.2]))
    assert made.length == 8


def test_member_axis_gather_picks_members_and_keeps_scalars():
    trees = [{"x": jnp.arange(3.0) + 10 * i, "head": jnp.asarray(7)} for i in range(2)]
    made = member_axis.gather_members(trees, np.array([4, 0, 0]))
    assert made["x"].tolist() == [11.0, 0.0, 0.0]
    assert int(made["head"]) == 7


def test_diverged_trial_member_fails_alone(tmp_path):
    base = settings()
    jobs = [Job(i, i, {"lr": lr}, 0, STEPS, seeds=(0, 1)) for i, lr in enumerate((1e-3, 1e30))]
    good, bad = JobRunner(StudyPlan(base, "last", tmp_path)).run(jobs)
    assert good["failed"] == []
    assert bad["failed"] == [0, 1]
    assert bad["returns"][0][-1] is None


def test_final_objective_scores_are_evaluation_episodes_of_each_member(tmp_path):
    base = dataclasses.replace(settings(), evaluate_episodes=3)
    (line,) = JobRunner(StudyPlan(base, "final", tmp_path)).run(
        [Job(0, 0, {}, 0, STEPS, seeds=(0, 1))]
    )
    run = sterling.train(
        "ppo", "probe:both", steps=STEPS, seeds=2, preset=False, log_every=64,
        evaluate_episodes=3, **SMALL,
    )  # fmt: skip
    assert line["measured"] == run.result["final"]["return"]["per_seed"]


def test_stopped_study_leaves_its_job_undone(tmp_path):
    with pytest.raises(StudyStopped):
        JobRunner(StudyPlan(settings(), "last", tmp_path)).run(
            [Job(0, 0, {}, 0, STEPS, True, None, (0,))], stopping=lambda: True
        )
    assert not (tmp_path / "states").exists()


def test_invalid_trial_configuration_is_refused_in_one_line(tmp_path):
    with pytest.raises(Mistake, match="does not fit into a rollout"):
        JobRunner(StudyPlan(settings(), "last", tmp_path)).run(
            [Job(0, 0, {"minibatch": 4096}, 0, STEPS, seeds=(0,))]
        )


def test_parallel_trials_are_split_by_program_and_budget(tmp_path):
    base = settings()
    fields = [{"lr": 0.1}, {"lr": 0.2}, {"width": 16}, {"lr": 0.3}, {"lr": 0.4}]
    jobs = [Job(i, i, each, 0, STEPS, seeds=(0,)) for i, each in enumerate(fields)]
    jobs[4] = dataclasses.replace(jobs[4], stop=STEPS // 2)

    def cut(together, workers, strategy="map"):
        plan = StudyPlan(dataclasses.replace(base, strategy=strategy), "last", tmp_path, together)
        return [[job.id for job in piece] for piece in split_into_pieces(plan, jobs, workers)]

    assert cut(1, 2) == [[0], [1], [3], [2], [4]]
    assert cut(16, 1) == cut(1, 1, "vmap") == [[0, 1, 3], [2], [4]]
    assert cut(16, 2) == [[0, 1], [3], [2], [4]]  # nobody waits
