"""The command line, Python and files of settings have the same words."""

import argparse
import inspect
import json

import pytest

import sterling
from sterling.cli import main
from sterling.commands import compare, evaluate, report, train, tune
from sterling.commands.options.option_spelling import spell_as_options
from sterling.evaluation.compare_runs import compare as compare_runs
from sterling.evaluation.evaluate_run import EVALUATE_ARGUMENTS
from sterling.report.build_report import report_on
from sterling.training.config.run_arguments import TRAIN_ARGUMENTS
from sterling.training.until_decided.decided_comparison import compare_until_decided
from sterling.tuning.study_arguments import TUNE_ARGUMENTS
from sterling.types import Mistake

SMALL = {"steps": 128, "envs": 2, "length": 32, "minibatch": 32, "epochs": 1, "width": 8,
         "evaluate_episodes": 1, "preset": False}  # fmt: skip


def command_words(module):
    """The names of a command's options, and of the words without dashes."""
    parser = argparse.ArgumentParser(add_help=False)
    module.add_options(parser)
    return {action.dest for action in parser._actions}


def test_train_command_and_python_take_the_same_arguments():
    written = command_words(train)
    python = set(TRAIN_ARGUMENTS) | set(inspect.signature(sterling.train).parameters)
    written = (written - {"world", "env"}) | {"env_options"}  # ENVIRONMENT; env is accepted too
    assert written - python == {"max_episode_steps"}  # an option of the environment
    assert python - written == {"sinks", "callbacks", "options"}  # objects


def test_tune_command_and_python_take_the_same_arguments():
    written = (command_words(tune) - {"world", "env", "resume"}) | {"env_options"}
    python = set(TUNE_ARGUMENTS) | set(inspect.signature(sterling.tune).parameters)
    assert written - python == {"max_episode_steps"}
    assert python - written == {"watch", "options"}


def test_evaluate_compare_report_commands_and_python_take_the_same_arguments():
    assert command_words(evaluate) - {"folder", "json"} == set(EVALUATE_ARGUMENTS) - {"run"}
    python = set(inspect.signature(compare_runs).parameters) - {"training"}
    python |= set(inspect.signature(compare_until_decided).parameters) - {"scoring", "quiet"}
    assert command_words(compare) - {"json"} == python
    assert command_words(report) == set(inspect.signature(report_on).parameters)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    one = sterling.train(
        "ppo",
        "CartPole-v1",
        out=folder / "one",
        max_episode_steps=20,
        tensorboard=True,
        quiet=True,
        **SMALL,
    )
    other = sterling.train(
        "ppo", "CartPole-v1", out=folder / "other", env={"max_episode_steps": 20}, lr=0.1, **SMALL
    )
    return one, other


@pytest.mark.slow
def test_train_in_python_takes_env_options_and_output_sinks_by_name(runs):
    one, other = runs
    assert one.settings.env_options == other.settings.env_options == {"max_episode_steps": 20}
    assert list((one.path / "tensorboard").iterdir())
    assert one.result["final"]["return"]["per_seed"][0] <= 20


@pytest.mark.parametrize(
    ("message", "typed"),
    [
        ("a dataset is needed: add data=FILE", "a dataset is needed: add --data FILE"),
        ("give data=FILE and updates=N.", "give --data FILE and --updates N."),
        ("steps=9 is below one iteration", "--steps 9 is below one iteration"),
        ("a larger budget, as steps=N (--steps N).", "a larger budget, as --steps N."),
        ("updates=N or steps=N (--updates N, --steps N)", "--updates N or --steps N"),
        ("set tune_alpha=True (--tune-alpha)", "set --tune-alpha"),
        ("set tune_alpha=False.", "set --no-tune-alpha."),
        ("Set diversity=None, or keep='best'.", "Set --diversity none, or --keep best."),
        ("add --env data=3 or --online steps=4", "add --env data=3 or --online steps=4"),
        ("levels=9 is too many", "--env levels=9 is too many"),
        ("levels is the run's: give levels=3 (--levels 3)", "levels is the run's: give --levels 3"),
        ("add a phase: then='steps=N data=F'", "add a phase: --then 'steps=N data=F'"),
        ("add --steps N (in Python Guidance(..., steps=N)).", "add --steps N."),
        ("leave out tune_alpha, or action_mask.", "leave out --tune-alpha, or action_mask."),
        ("give explore=True", "give explore=True"),
        ("runs/a:data=3", "runs/a:data=3"),
    ],
)
def test_message_on_the_command_line_spells_options_as_they_are_typed(message, typed):
    options = ["--data", "--updates", "--steps", "--diversity", "--keep", "--then", "--levels"]
    options += ["--tune-alpha", "--no-tune-alpha", "--env", "--online"]
    assert spell_as_options(message, options, of_environment=["levels"]) == typed


def test_option_is_spelled_for_the_command_line_or_for_python(tmp_path, capsys):
    assert main(["train", "iql", "Pendulum-v1", "--updates", "9"]) == 2
    assert "need a dataset: add --data FILE\n" in capsys.readouterr().err
    with pytest.raises(Mistake, match="need a dataset: add data=FILE"):
        sterling.train("iql", "Pendulum-v1", updates=9, quiet=True)
    words = ["train", "dt", "Pendulum-v1", "--steps", "9", "--out", str(tmp_path / "run")]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "--data FILE and --updates N" in said
    assert "data=" not in said


def test_quiet_false_shows_progress(capsys):
    sterling.train("ppo", "probe:constant", quiet=False, **SMALL)
    assert "PPO on probe:constant" in capsys.readouterr().out


def test_progress_in_python_is_on_standard_error_unless_quiet_or_in_a_worker(capsys, monkeypatch):
    run = sterling.train("ppo", "probe:constant", **SMALL)
    told = capsys.readouterr()
    assert "PPO on probe:constant" in told.err
    assert told.out == ""
    assert repr(run).endswith(", in no folder)")
    assert f"{run.result['steps']:,} steps" in repr(run)
    sterling.train("ppo", "probe:constant", quiet=True, **SMALL)
    monkeypatch.setattr("multiprocessing.parent_process", object)
    sterling.train("ppo", "probe:constant", **SMALL)
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_evaluate_compare_and_report_return_objects(runs, tmp_path):
    one, other = runs
    found = sterling.evaluate(one, episodes=2)
    assert found.per_seed == {0: one.evaluate(2)["return"]["per_seed"][0]}
    assert str(found).startswith("Evaluation: return of ppo in CartPole-v1, 2 episodes per seed")
    assert sterling.evaluate(one.path, episodes=2).to_json() == found.to_json()
    made = sterling.compare(one, other.path)
    assert {at.label for at in made.contests[0].standings} == {"ppo lr=0.0003", "ppo lr=0.1"}
    assert "not compared" in str(made)
    page = sterling.report(*runs, out=tmp_path / "report", title="Two runs")
    assert page.path == tmp_path / "report" / "index.html"
    assert "Two runs" in page.path.read_text()
    for each in (found, made, page):
        json.dumps(each.to_json(), allow_nan=False)


def test_sterling_report_is_both_function_and_package():
    import sterling.report as room
    from sterling.report import text_tables

    assert sterling.report is room
    assert room.text_tables is text_tables


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"evaluate_episode": 3}, "did you mean evaluate_episodes"),
        ({"max_episode_step": 3}, "did you mean max_episode_steps"),
        ({"foo": 3}, "ppo has no field 'foo'; it has lr"),
        ({"lrr": 3, "wdth": 9}, "no field 'lrr'; did you mean lr.*; ppo has no field 'wdth'"),
        ({"max_episode_steps": 3, "env": {"max_episode_steps": 4}}, "given twice"),
        ({"env": {}, "env_options": {}}, "env and env_options are the same argument"),
        ({"tensorboard": True}, "Give out=FOLDER"),
        ({"quiet": 1}, "quiet must be True or False"),
        ({"guiding": "expansion"}, "need a guide"),
    ],
)
def test_wrong_train_arguments_in_python_are_refused_in_one_line(given, said):
    with pytest.raises(Mistake, match=said):
        sterling.train("ppo", "CartPole-v1", steps=1000, **given)


@pytest.mark.slow
def test_a_field_wins_over_an_option_of_the_environment_with_its_name():
    gymnasium = pytest.importorskip("gymnasium")

    def make(gamma: float = 0.5, size: int = 3):
        return gymnasium.make("CartPole-v1", max_episode_steps=size)

    run = sterling.train("ppo", make, gamma=0.9, size=7, **SMALL)
    assert run.settings.config.gamma == 0.9
    assert run.settings.env_options == {"size": 7}


def test_ambiguous_env_option_in_python_is_refused():
    def make(**options):
        raise AssertionError("nothing is made")

    with pytest.raises(Mistake, match=r"write env_options=\{'size': \.\.\.\}"):
        sterling.train("ppo", make, steps=1000, size=7)


def test_compare_refuses_options_without_effect(runs):
    with pytest.raises(Mistake, match="effect only with until_decided"):
        sterling.compare(*runs, steps=3)
    with pytest.raises(Mistake, match="effect only with --about mean"):
        sterling.compare(*runs, within=(0, 1))
    with pytest.raises(Mistake, match="needs --environment and --steps"):
        sterling.compare("ppo", "dqn", until_decided=True)
    with pytest.raises(Mistake, match="no folder"):
        sterling.report(_without_folder(runs))


def _without_folder(runs):
    from sterling.training.trained_run import TrainedRun

    one = runs[0]
    return TrainedRun(one.settings, one.agent, one.result, None)
