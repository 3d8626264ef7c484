"""Studies from end to end: seeds kept apart, exact resuming, what the report says."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from sterling.training.config.resolve_settings import resolve_settings
from sterling.tuning import resume, search_space, tune
from sterling.tuning.jobs.job_pool import InProcessWorker
from sterling.tuning.jobs.parallel_trials import StudyPlan
from sterling.tuning.searchers.searchers import Incumbent, RandomSearch
from sterling.tuning.tuning_study import FIRST_TEST_TRIAL, Study
from sterling.types import Mistake

SMALL = {"length": 8, "minibatch": 32, "epochs": 1, "width": 8, "preset": False, "log_every": 64}
SPACE = {"lr": "1e-4..1e-1:log", "clip": "0.1..0.4"}


def study(out=None, search="random", trials=4, **options):
    given = {"steps": 512, "seeds": 2, "test_seeds": 2, "space": SPACE, "workers": 1}
    return tune(
        "ppo", "probe:both", out=out, search=search, trials=trials, **{**given, **SMALL, **options}
    )


def timeless(path):
    """A study's history and report without clock times."""
    lines = []
    for name in ("trials.jsonl", "test.jsonl"):
        for text in (path / name).read_text().splitlines():
            line = json.loads(text)
            line.pop("at")
            line["cost"].pop("seconds")
            lines.append((name, line))
    report = json.loads((path / "report.json").read_text())
    report["budget"] = {k: v for k, v in report["budget"].items() if "seconds" not in k}
    lines.sort(key=lambda each: (each[0], each[1]["id"]))
    return lines, report


@pytest.fixture(name="random_study", scope="module")
def _random_study(tmp_path_factory):
    """A finished study of four random trials, and its folder."""
    path = tmp_path_factory.mktemp("random") / "s"
    return study(path), path


def test_study_report_holds_incumbent_test_and_budget(random_study):
    tuned, path = random_study
    report = tuned.report
    assert report == json.loads((path / "report.json").read_text())
    best = report["incumbent"]
    assert set(best["fields"]) == set(SPACE)
    assert tuned.fields == best["fields"]
    assert len(best["tuning"]["per_seed"]) == 2
    for side in (best["test"], report["defaults"]["test"], report["difference"]):
        assert len(side["per_seed"]) == 2
        if len(set(side["per_seed"])) > 1:
            assert side["low"] <= side["estimate"] <= side["high"]
        else:  # two equal scores show no spread
            assert side["low"] is None
    assert report["defaults"]["fields"] == {"lr": 3e-4, "clip": 0.2}
    assert (report["seeds"], report["test_seeds"]) == ([0, 1], [1000, 1001])
    assert report["space"] == ["lr=0.0001..0.1:log", "clip=0.1..0.4"]
    budget = report["budget"]
    assert (budget["trials"], budget["steps"], budget["test_steps"]) == (4, 4 * 2 * 512, 4 * 512)
    assert budget["wall_seconds"] >= budget["search_wall_seconds"] > 0
    text = (path / "report.md").read_text()
    assert "fresh seeds" in text
    assert report["command"] in text
    assert not (path / "states").exists()
    scores = [json.loads(t)["scores"] for t in (path / "trials.jsonl").open()]
    assert best["tuning"]["score"] == max(sum(each) / 2 for each in scores)


@pytest.mark.parametrize(
    ("search", "objective", "alike"),
    [
        pytest.param("random", "last", True, marks=pytest.mark.slow),
        ("random", "bound", False),  # a mean less its error is no mean
        ("asha", "last", True),
        ("pbt", "area", False),  # its trials are told apart by their last generation
    ],
)
def test_study_report_gives_optimism_only_for_comparable_scores(search, objective, alike):
    how = {"asha": {"eta": 2, "least": 128}, "pbt": {"generations": 2}}.get(search, {})
    report = study(search=search, objective=objective, trials=2, **how).report
    best = report["incumbent"]
    assert best["plan"][-1][1] == report["steps"]  # also where two trials never fill a rung
    flatters = best["tuning"]["score"] - best["test"]["estimate"]
    assert report["optimism"] == (flatters if alike else None)


class Replies(InProcessWorker):
    """Trains nothing: a job's rows are the steps they were logged at. The incumbent's seed
    ``lost[0]`` diverges in the piece that begins at ``lost[1]``."""

    def __init__(self, plan, lost):
        super().__init__(plan, lambda: False)
        self.lost = lost

    def run(self, todo, record):
        for job in (job for piece in todo for job in piece):
            rows = [float(step) for step in range(job.start, job.stop, 64)]
            made = {"returns": [rows] * len(job.seeds), "measured": [99.0] * len(job.seeds)}
            lost = job.trial > FIRST_TEST_TRIAL and job.start == self.lost[1]
            made["failed"] = [seed for seed in job.seeds if lost and seed == self.lost[0]]
            record([{**job.to_json(), **made, "cost": {"steps": 1, "seconds": 1.0}}])


@pytest.mark.parametrize(
    ("objective", "whole"), [("area", 224.0), ("last", 448.0), ("final", 99.0)]
)
def test_incumbent_test_runs_a_changing_plan_from_its_start(objective, whole, tmp_path):
    """As it measures the defaults; a seed that diverged in an earlier piece has failed."""
    options = {"length": 8, "minibatch": 32, "epochs": 1, "width": 8}
    settings = resolve_settings(
        "ppo", "probe:both", steps=512, preset=False, fields=options, log_every=64
    )
    plan = ((0, 128, {"lr": 1e-3}), (128, 384, {"lr": 2e-3}), (384, 512, {"lr": 3e-3}))
    best = Incumbent(3, 9.0, (9.0, 9.0), {"lr": 3e-3}, plan)
    base = StudyPlan(settings, objective, tmp_path)
    searcher, own = (
        RandomSearch(search_space.read_space("ppo", SPACE), 0, 1, 512),
        {"parallel": 1, "chained": False},
    )
    made = Study(base, searcher, (0, 1), watch=lambda stage, wave, line: None, **own)
    defaults, tuned = made.test(Replies(base, (8, 128)), best, (7, 8))
    made.close()
    assert defaults["scores"] == [whole, whole]
    assert tuned["scores"] == [whole, 0.0]


def test_study_refuses_a_budget_of_one_iteration():
    with pytest.raises(Mistake, match="64 steps are one iteration, which is played before"):
        study(steps=64)
    assert study(steps=64, objective="final", evaluate_episodes=2).fields


def test_study_refuses_tuning_seeds_as_test_seeds(tmp_path):
    with pytest.raises(Mistake, match="seeds 1 are used for tuning and for the test"):
        study(test_seeds=[1, 9])
    with pytest.raises(Mistake, match="seeds 1000"):
        study(seeds=[1000, 3])
    with pytest.raises(Mistake, match="all different"):
        study(seeds=[3, 3])
    path = tmp_path / "s"  # nor can a study on disk be made to test on them
    with pytest.raises(Interrupted):
        study(path, watch=interrupt_after(1))
    asked = json.loads((path / "study.json").read_text())
    (path / "study.json").write_text(json.dumps({**asked, "test_seeds": [0, 1]}))
    wrong = r"study\.json: seeds 0, 1 are used for tuning and for the test"
    with pytest.raises(Mistake, match=wrong):
        resume(path, workers=1)


class Interrupted(Exception):
    pass


def interrupt_after(count):
    """A watch that breaks off when so many jobs have come in."""
    seen = []

    def watch(stage, wave, line):
        if line is not None:
            seen.append(line)
        if len(seen) == count:
            raise Interrupted

    return watch


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("search", "options", "stops"),
    [
        ("random", {}, (2, 5)),
        pytest.param("random", {"strategy": "vmap"}, (2,), marks=SLOW),
        pytest.param(
            "asha", {"eta": 2, "least": 128, "parallel": 2}, (3, 5), marks=pytest.mark.slow
        ),
        pytest.param("pb2", {"generations": 4}, (5, 11), marks=SLOW),
        pytest.param("optuna", {"parallel": 2}, (3,), marks=SLOW),
    ],
)
def test_an_interrupted_study_resumes_exactly(search, options, stops, random_study, tmp_path):
    whole = random_study[1]
    if (search, options) != ("random", {}):
        study(whole := tmp_path / "whole", search, **options)
    path = tmp_path / "broken"
    with pytest.raises(Interrupted):
        study(path, search, watch=interrupt_after(stops[0]), **options)
    for count in stops[1:]:
        with pytest.raises(Interrupted):
            resume(path, workers=1, watch=interrupt_after(count - stops[0]))
    with (path / "trials.jsonl").open("a") as file:
        file.write('{"id": 99, "torn')  # as a killed process leaves it
    tuned = resume(path, workers=1)
    assert timeless(path) == timeless(whole)
    assert resume(path).report == tuned.report  # a finished study is returned as it is


SCRIPT = """
import sys
from sterling.tuning import tune
tune("ppo", "probe:both", out=sys.argv[1], search="pbt", trials=4, generations=4, steps=512,
     seeds=2, test_seeds=2, space={"lr": "1e-4..1e-1:log", "clip": "0.1..0.4"}, workers=2,
     length=8, minibatch=32, epochs=1, width=8, preset=False, log_every=64)
"""


@pytest.mark.slow
def test_killed_multi_process_study_resumes_to_the_same_result(tmp_path):
    path = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path)], start_new_session=True)
    history = path / "trials.jsonl"
    while not (history.exists() and history.read_text().count("\n") >= 5):
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (path / "report.json").exists()
    resume(path, workers=1)
    study(tmp_path / "whole", "pbt", generations=4)
    assert timeless(path) == timeless(tmp_path / "whole")


def test_study_saves_and_exits_with_code_75_on_a_signal(tmp_path, capsys):
    def watch(stage, wave, line):
        if line is None:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as left:
        study(tmp_path / "s", watch=watch)
    assert left.value.code == 75
    assert f"sterling tune --resume {tmp_path / 's'}" in capsys.readouterr().out
    assert resume(tmp_path / "s", workers=1).report["budget"]["trials"] == 4


@pytest.mark.slow
def test_study_groups_trials_by_program_shape(tmp_path):
    path = tmp_path / "s"
    study(path, space={"lr": "1e-4..1e-1:log", "depth": "1..2", "activation": "tanh|relu"})
    lines = [json.loads(text) for text in (path / "trials.jsonl").open()]
    assert sorted(line["id"] for line in lines) == [0, 1, 2, 3]
    assert len({(line["fields"]["depth"], line["fields"]["activation"]) for line in lines}) > 1


def test_population_study_refuses_shape_fields():
    with pytest.raises(Mistake, match="leave out depth"):
        study(search="pbt", space={**SPACE, "depth": "1..3"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"search": "randm"}, "did you mean random"),
        ({"objective": "lsat"}, "did you mean last"),
        ({"space": {"lrr": "1..2"}}, "no field 'lrr'"),
        ({"lr": 1e-3}, "both fixed and searched"),
        ({"widht": 3}, "did you mean width"),
        ({"search": "random", "eta": 2}, "no option eta"),
        ({"strategy": "processes"}, "leave strategy out"),
        ({"trials": 0}, "trials must be a whole number of at least 1"),
        ({"workers": 0}, "workers must be a whole number of at least 1"),
        ({"workers": -1}, "workers must be a whole number of at least 1"),
        ({"key": -1}, "key must be a whole number of at least 0"),
        ({"key": 2**32}, r"below 2\^32"),
        ({"parallel": 0}, "parallel must be a whole number of at least 1"),
        ({"test_seeds": [5_000_000_000]}, r"below 2\^31"),
        ({"test_seeds": 5_000_000_000}, r"below 2\^31"),
        ({"seeds": 0}, "seeds must be a whole number of at least 1"),
        ({"objective": "final", "evaluate_episodes": 0}, "evaluate_episodes of 1 or more"),
        ({"search": "halving", "eta": 2.5}, "eta must be a whole number"),
        ({"space": {"depth": [1, "two"]}}, "must be of type int"),
        ({"minibatch": 4096}, "does not fit into a rollout"),
        ({"search": "pbt"}, "10 generations do not fit into the 8 .* ask for generations=8"),
        ({"search": "halving", "steps": 256}, r"3 rungs \(28, 85, 256\) .* ask for least=85"),
    ],
)
def test_study_refuses_invalid_arguments(options, words, tmp_path):
    with pytest.raises(Mistake, match=words) as caught:
        study(tmp_path / "s", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"search": "pbt", "generations": 8}, marks=pytest.mark.slow),
        {"search": "halving", "least": 85, "steps": 256},
    ],
)
def test_study_settings_named_as_remedy_are_accepted(given):
    assert study(**given, trials=2).report["budget"]["steps"] > 0


def test_successive_halving_rungs_must_fit_into_every_trials_iterations():
    """Those of 8 steps a world have twice as many, into which six rungs would fit."""
    given = {"search": "asha", "eta": 2, "least": 16, "space": {"length": [8, 16]}, "envs": 2}
    with pytest.raises(Mistake, match=r"6 rungs .* into the 16 iterations .* ask for least=32"):
        tune("ppo", "probe:both", steps=512, trials=8, seeds=2, preset=False, **given)


def test_study_refuses_a_space_with_every_field_fixed():
    own = {"lr": 3e-4, "gamma": 0.99, "gae_lambda": 0.95, "clip": 0.2, "entropy_coef": 0.0}
    own |= {"value_coef": 0.5, "max_grad_norm": 0.5}
    with pytest.raises(Mistake, match="nothing is left to search: lr, gamma"):
        study(space=None, **own)


def test_study_refuses_to_search_a_field_without_effect():
    given = {"steps": 500, "trials": 2, "warmup": 8, "preset": False}
    with pytest.raises(Mistake, match=r"dqn: correction=0\.2 has no effect with priority=None"):
        tune("dqn", "probe:both", space={"correction": "0.2..0.8"}, **given)


def test_study_counts_may_be_written_as_floats(tmp_path):
    study(tmp_path / "s", "halving", trials=3, least=256.0, eta=2)
    lines = [json.loads(text) for text in (tmp_path / "s" / "trials.jsonl").open()]
    assert [(line["stop"], type(line["stop"])) for line in lines] == [(256, int)] * 3 + [(512, int)]


def test_study_folder_must_be_a_study_or_new(tmp_path):
    with pytest.raises(Mistake, match="holds no study"):
        resume(tmp_path)
    with pytest.raises(Interrupted):
        study(tmp_path / "s", watch=interrupt_after(1))
    with pytest.raises(Mistake, match="--resume"):
        study(tmp_path / "s")


def test_study_resume_detects_a_changed_history(tmp_path):
    path = tmp_path / "s"
    with pytest.raises(Interrupted):
        study(path, watch=interrupt_after(2))
    lines = (path / "trials.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    first["fields"]["lr"] = 0.5
    (path / "trials.jsonl").write_text(json.dumps(first) + "\n")
    with pytest.raises(Mistake, match="not what this study asks for"):
        resume(path, workers=1)


def test_tune_command_tunes_and_resumes(tmp_path, capsys):
    import argparse

    from sterling.commands import tune as command

    parser = argparse.ArgumentParser()
    command.add_options(parser)
    path = tmp_path / "s"
    words = f"ppo probe:both --steps 512 --trials 2 --seeds 2 --test-seeds 2 --out {path} "
    words += "--space lr=1e-4..1e-1:log --set length=8 --set minibatch=32 --set epochs=1 "
    words += "--set width=8 --no-preset --workers 1"
    assert command.carry_out(parser.parse_args(words.split())) == 0
    out = capsys.readouterr().out
    assert "2/2 trials" in out
    assert "fresh seeds" in out
    assert "sterling train ppo probe:both --steps 512 --no-preset --envs 8 --lr" in out
    assert command.carry_out(parser.parse_args(["--resume", str(path)])) == 0
    assert "difference, seed by seed" in capsys.readouterr().out
    beside = ["--resume", str(path), "--trials", "64", "--no-preset", "--set", "lr=1", "--quiet"]
    with pytest.raises(Mistake, match=r"Leave out --trials, --set, --no-preset\.$"):
        command.carry_out(parser.parse_args(beside))
    with pytest.raises(Mistake, match="Leave out ALGORITHM"):
        command.carry_out(parser.parse_args(["ppo", "--resume", str(path)]))
    with pytest.raises(Mistake, match="workers must be"):
        command.carry_out(parser.parse_args(["--resume", str(path), "--workers", "0"]))
    with pytest.raises(Mistake, match="--resume FOLDER"):
        command.carry_out(parser.parse_args(["ppo"]))
    with pytest.raises(Mistake, match="NAME=LOW"):
        command.carry_out(parser.parse_args(["ppo", "probe:both", "--steps", "9", "--space", "lr"]))
