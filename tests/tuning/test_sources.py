"""Studies of learners from logs, and of language models."""

import dataclasses
import json
import shlex

import letters
import logs
import pytest
from every_case import every

import sterling
from sterling.algorithms import ALGORITHMS
from sterling.cli_options import parse_command_line
from sterling.commands import train as command
from sterling.training.config.resolve_settings import resolve_settings
from sterling.tuning import resume, search_space, study_outcome, tune
from sterling.types import Mistake

SPACE = {"lr": "1e-4..1e-1:log"}
SMALL = {"seeds": 2, "test_seeds": 2, "space": SPACE, "workers": 1, "evaluate_episodes": 4}
NETS = {"width": 8, "batch": 16, "preset": False}
SPEECH = {"model": "nano", "context": 16, "slots": 64}
FEW = {"prompts": 4, "group": 32, "limit": 4}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return logs.write("both-continuous", False, tmp_path_factory.mktemp("logs"))


class Broken(Exception):
    pass


def breaking(after):
    """A watch that breaks off when so many jobs have come in."""
    seen = []

    def watch(stage, wave, line):
        seen.extend([line] * (line is not None))
        if len(seen) == after:
            raise Broken

    return watch


def lines(path):
    return [json.loads(text) for text in (path / "trials.jsonl").open()]


@pytest.mark.slow
def test_study_trial_on_a_dataset_equals_training_with_its_settings(log, tmp_path):
    given = {"environment": "probe:both-continuous", "data": log, "updates": 60}
    given["augment"] = "gaussian:0.0003"
    tuned = tune("iql", trials=3, out=tmp_path / "s", **given, **SMALL, **NETS)
    report = tuned.report
    assert (report["objective"], report["unit"], report["updates"]) == ("final", "updates", 60)
    assert report["budget"]["updates"] == 3 * 2 * 60
    alone = sterling.train("iql", seeds=2, evaluate_episodes=4, **given, **NETS, **tuned.fields)
    assert alone.result["final"]["return"]["per_seed"] == report["incumbent"]["tuning"]["per_seed"]
    assert f"--updates 60 --data={log}" in report["command"]
    told = parse_command_line(
        shlex.split(report["command"])[1:]
    )  # what it says trains the same again
    assert (told.world, told.data, told.augment) == ("probe:both-continuous", log, given["augment"])
    assert (told.lr, told.width, told.batch) == (tuned.fields["lr"], 8, 16)
    assert "training for 60 updates" in (tmp_path / "s" / "report.md").read_text()


@pytest.mark.slow
def test_interrupted_study_on_a_dataset_resumes_exactly(log, tmp_path):
    given = {"data": log, "updates": 80, "search": "asha", "eta": 2, "least": 20, "parallel": 2}
    given |= {"environment": "probe:both-continuous", "trials": 4, **SMALL, **NETS}
    whole = tune("td3bc", out=tmp_path / "whole", **given)
    with pytest.raises(Broken):
        tune("td3bc", out=tmp_path / "broken", watch=breaking(after=3), **given)
    assert resume(tmp_path / "broken", workers=1).fields == whole.fields
    first, second = (lines(tmp_path / name) for name in ("whole", "broken"))
    assert [one["scores"] for one in first] == [one["scores"] for one in second]
    assert {one["stop"] for one in first} == {20, 40, 80}


@pytest.mark.slow
def test_study_tunes_a_language_model_by_sampled_rewards(tmp_path):
    given = {"updates": 3, **SMALL, **SPEECH, **FEW}
    tuned = tune("grpo", letters.Letters, trials=2, out=tmp_path / "s", **given)
    assert tuned.report["objective"] == "last"
    rows = lines(tmp_path / "s")
    assert all(len(seed) == 3 for one in rows for seed in one["returns"])
    assert rows[0]["returns"] != rows[1]["returns"]
    own = {**SPEECH, **FEW, **rows[1]["fields"], "log_every": 1}
    sterling.train("grpo", letters.Letters, updates=3, seeds=2, out=tmp_path / "run", **own)
    metrics = [json.loads(text) for text in (tmp_path / "run" / "metrics.jsonl").open()]
    logged = [row["data/return"] for row in metrics]
    assert [list(seed) for seed in zip(*logged, strict=True)] == rows[1]["returns"]


@pytest.mark.parametrize(("name", "fields"), [
    ("gspo", {"level": "token"}),
    ("dr-grpo", {"scale": "group", "lr": 1e-3}),
    ("dapo", {"high": 0.2}),
    ("grpo", {"epochs": 2}),
])  # fmt: skip
def test_study_prints_a_train_command_that_restores_preset_fields(name, fields):
    settings = resolve_settings(name, "reverse-text", updates=3, preset=False, fields=fields)
    told = parse_command_line(
        shlex.split(study_outcome.training_command(settings, {"entropy_coef": 0.01}))[1:]
    )
    again = resolve_settings(
        name, told.world, updates=3, preset=False, fields=command.config_values(told)
    )
    assert again.config == dataclasses.replace(settings.config, entropy_coef=0.01)


@pytest.mark.slow
def test_study_of_supervised_learning_scores_answers(tmp_path):
    given = {"updates": 2, **SMALL, **SPEECH, "limit": 4, "examples": 8, "batch": 4}
    tuned = tune("sft", letters.Letters, trials=2, **given)
    assert tuned.report["objective"] == "final"
    assert all(0.0 <= score <= 1.0 for score in tuned.report["incumbent"]["tuning"]["per_seed"])


@every("name", ALGORITHMS)
def test_search_space_exists_for_every_algorithm(name):
    assert search_space.read_space(name, None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"objective": "last"}, "use the objective final"),
        ({"steps": 100}, "give steps or updates, not both"),
        ({"updates": 0}, "no budget"),
        ({"top": 3.0}, "above 0 and at most 1"),
    ],
)
def test_study_on_a_dataset_refuses_invalid_arguments(options, words, log, tmp_path):
    given = {"environment": "probe:both-continuous", "data": log, "updates": 20}
    with pytest.raises(Mistake, match=words) as caught:
        tune("iql", out=tmp_path / "s", **{**given, **SMALL, **NETS, **options})
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "s").exists()


def test_study_refuses_dump():
    with pytest.raises(Mistake, match="leave dump out"):
        tune("grpo", letters.Letters, updates=2, dump="here", **SMALL, **SPEECH)
