"""Training until a question is decided: stops early, does not cry wolf, goes on when killed."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from sterling.cli import main
from sterling.training.saving import run_folder
from sterling.training.until_decided import train_until_decided
from sterling.training.until_decided.train_until_decided import Contender, Question, until_decided
from sterling.types import Mistake

TINY = {"envs": 4, "evaluate_episodes": 16}
FIELDS = {"length": 32, "minibatch": 32, "epochs": 4, "lr": 1e-2, "anneal": False}
LEARNS = Contender("learns", "ppo", FIELDS)
SLEEPS = Contender("sleeps", "ppo", FIELDS | {"lr": 0.0})


def question(*contenders, **rest):
    rest = {"max_seeds": 14, "per_look": 7} | rest
    return Question(contenders, "probe:both-continuous", steps=2048, options=TINY, **rest)


@pytest.fixture(scope="module")
def decided(tmp_path_factory):
    path = tmp_path_factory.mktemp("decided") / "study"
    return path, until_decided(question(LEARNS, SLEEPS), path)


@pytest.mark.slow
def test_until_decided_stops_at_the_first_decision(decided):
    path, made = decided
    (decision,) = made.decisions
    assert (decision.verdict, decision.interim, made.finished) == ("larger", 1, True)
    assert sorted(each.name for each in path.iterdir()) == [
        "decision.json", "learns", "question.json", "sleeps",
    ]  # fmt: skip
    assert [each.name for each in (path / "learns").iterdir()] == ["00"]


def test_until_decided_contenders_have_disjoint_seeds(decided):
    path, _ = decided
    seeds = [
        json.loads((path / label / "00" / "config.json").read_text())["seeds"]
        for label in ("learns", "sleeps")
    ]
    assert seeds == [list(range(7)), list(range(1000, 1007))]


def test_until_decided_repeated_answers_without_training(decided):
    path, made = decided
    before = (path / "learns" / "00" / "result.json").stat().st_mtime_ns
    assert until_decided(question(LEARNS, SLEEPS), path) == made
    assert (path / "learns" / "00" / "result.json").stat().st_mtime_ns == before


def test_until_decided_reuses_a_folder_with_only_a_partial_question(tmp_path):
    (tmp_path / ".question.json.partial-123").write_text("{")
    train_until_decided._open_study(question(LEARNS, SLEEPS), tmp_path)
    assert (tmp_path / "question.json").exists()
    (tmp_path / "question.json").rename(tmp_path / "notes.json")
    with pytest.raises(Mistake, match="holds other files"):
        train_until_decided._open_study(question(LEARNS, SLEEPS), tmp_path)


def test_until_decided_refuses_a_folder_with_another_question(decided):
    with pytest.raises(Mistake, match=r"another question \(alpha differ"):
        until_decided(question(LEARNS, SLEEPS, alpha=0.1), decided[0])


def test_until_decided_continues_a_question_without_about_and_within(decided, tmp_path):
    """Its question names neither what is decided nor bounds; every look is taken again."""
    path = shutil.copytree(decided[0], tmp_path / "study")
    asked = json.loads((path / "question.json").read_text())
    earlier = {name: value for name, value in asked.items() if name not in ("about", "within")}
    (path / "question.json").write_text(json.dumps(earlier))
    assert until_decided(question(LEARNS, SLEEPS), path) == decided[1]
    with pytest.raises(Mistake, match=r"another question \(about, within differ"):
        until_decided(question(LEARNS, SLEEPS, about="mean", within=(-20.0, 20.0)), path)


def test_until_decided_compares_means_within_bounds(decided, tmp_path):
    path = shutil.copytree(decided[0], tmp_path / "study")
    (path / "question.json").unlink()
    (path / "decision.json").unlink()
    asked = question(LEARNS, SLEEPS, about="mean", within=(-1e6, 1e6), max_seeds=7)
    (path / "question.json").write_text(json.dumps(dataclasses.asdict(asked)))
    made = until_decided(asked, path)
    assert (made.about, made.decisions[0].verdict) == ("mean", "equal")  # the bounds are far away
    assert "means of learns and sleeps are not distinguished" in str(made)


def test_until_decided_failed_seed_rule_may_be_set_later(decided, tmp_path):
    path = shutil.copytree(decided[0], tmp_path / "study")
    file = path / "sleeps" / "00" / "result.json"
    result = json.loads(file.read_text())
    result["final"]["return"]["per_seed"][0] = None
    file.write_text(json.dumps(result))
    with pytest.raises(
        Mistake, match=r"1 seeds failed\. Run the same command again .* --failed SCORE"
    ):
        until_decided(question(LEARNS, SLEEPS), path)
    assert until_decided(question(LEARNS, SLEEPS, failed=-1.0), path).finished
    with pytest.raises(Mistake, match=r"another question \(failed differ"):
        until_decided(question(LEARNS, SLEEPS, failed=0.0), path)


@pytest.mark.slow
def test_until_decided_continues_after_a_kill_between_trainings(decided, tmp_path):
    def killed(contender, seeds):
        if contender.label == "sleeps":
            raise KeyboardInterrupt
        return ()

    with pytest.raises(KeyboardInterrupt):
        until_decided(question(LEARNS, SLEEPS), tmp_path / "study", killed)
    assert (tmp_path / "study" / "learns" / "00" / "result.json").exists()
    assert until_decided(question(LEARNS, SLEEPS), tmp_path / "study") == decided[1]


def test_until_decided_exits_with_code_75_when_a_run_cannot_be_saved(tmp_path, monkeypatch):
    """It would be trained again and again."""
    monkeypatch.setattr(train_until_decided, "train", lambda *_, **__: None)
    with pytest.raises(SystemExit) as left:
        until_decided(question(LEARNS, SLEEPS), tmp_path / "full")
    assert left.value.code == 75


@pytest.mark.slow
def test_until_decided_finds_identical_contenders_equal(tmp_path):
    copies = (LEARNS, Contender("again", "ppo", FIELDS))
    made = until_decided(question(*copies), tmp_path / "study")
    (decision,) = made.decisions
    assert (decision.verdict, made.finished) == ("equal", True)
    assert made.runs == {"learns": 14, "again": 14}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (question(LEARNS), "at least two different labels"),
        (question(LEARNS, LEARNS), "at least two different labels"),
        (question(LEARNS, Contender("x", "ppo", {"lrr": 1.0})), "did you mean lr?"),
        (question(LEARNS, Contender("x", "ppo", {"minibatch": 9999})), "fit into a rollout"),
        (question(LEARNS, Contender("x", "dqn", {"warmup": 64})), "dqn does not support Box"),
        (question(LEARNS, SLEEPS, per_look=20), "are not possible"),
        (question(LEARNS, SLEEPS, per_look=2, max_seeds=2), "cannot decide anything"),
        (question(LEARNS, SLEEPS, failed="exclude"), "would bias the comparison"),
        (question(LEARNS, SLEEPS, failed=float("inf")), "must be a finite number; got inf"),
        (question(LEARNS, SLEEPS, about="mean"), "declare two bounds .* Add --within"),
    ],
)
def test_until_decided_refuses_invalid_questions_before_training(asked, message, tmp_path):
    with pytest.raises(Mistake, match=message):
        until_decided(asked, tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_until_decided_counts_seeds_without_a_final_return_as_failed(tmp_path):
    """All seeds of a look may have: then its result has no final evaluation."""
    found = {
        "01": {"seeds": [7, 8, 9], "final": {}},
        "00": {"seeds": [5, 6], "final": {"return": {"per_seed": [1.5, None]}}},
    }
    for name, result in found.items():
        (tmp_path / name).mkdir()
        run_folder.write_result(tmp_path / name, result)
    np.testing.assert_array_equal(train_until_decided.final_scores(tmp_path), [1.5, *[np.nan] * 4])


CHOICE = f"{Path(__file__).parents[1] / 'contract' / 'choice.py'}:Choice"


@pytest.mark.slow
def test_until_decided_compares_a_cost_channel_in_its_direction(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fields = "length=16,minibatch=16,epochs=8,anneal=false,width=8"
    words = ["compare", f"a=ppo:{fields},lr=0.02", f"b=ppo:{fields},lr=0.0", "--until-decided"]
    words += ["--environment", CHOICE, "--steps", "1024", "--metric", "cost"]
    words += ["--max-seeds", "14", "--per-look", "7", "--out", "study", "--failed", "worst"]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "mean cost" in told
    assert "a tends to score lower than b: lower in 1.00" in told
    asked = run_folder.read_json(tmp_path / "study" / "question.json")
    assert (asked["metric"], asked["direction"], asked["failed"]) == ("cost", "lower", 1.0)
    (decision,) = run_folder.read_json(tmp_path / "study" / "decision.json")["decisions"]
    assert decision["difference"] == pytest.approx(-1.0)
    assert (decision["verdict"], decision["direction"]) == ("larger", "lower")
    for metric, said in (("cots", "reports cost, seen"), ("seen", "does not declare whether")):
        assert main([*words[:-8], "--metric", metric, "--steps", "1024"]) == 2
        assert said in capsys.readouterr().err
