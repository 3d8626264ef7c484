"""The words of a study: fields by value and by range, as options, in Python and from files."""

import pytest

import sterling
from sterling.cli_options import parse_command_line
from sterling.commands import tune as command
from sterling.tuning.search_space import read_space
from sterling.tuning.study_arguments import sort_arguments, study_arguments
from sterling.types import Mistake

PLACE = "tune ppo CartPole-v1 --steps 4096 "


def understood(text, config=None):
    """What a command line asks for: the space, and the arguments of study.json."""
    chosen = parse_command_line(text.split())
    asked = study_arguments(config or chosen.config, command._command_line_arguments(chosen))
    _, space, arguments = sort_arguments(asked)
    return space, arguments


def test_study_arguments_fix_a_value_or_search_a_range():
    space, found = understood(
        PLACE
        + "--lr 1e-5..1e-2:log --minibatch 6_4 --activation tanh|relu --no-anneal --epochs 2..9"
    )
    assert space == {"lr": "1e-5..1e-2:log", "activation": "tanh|relu", "epochs": "2..9"}
    assert found["fixed"] == {"minibatch": 64, "anneal": False}
    kinds = [(each.name, each.kind) for each in read_space("ppo", space)]
    assert kinds == [("lr", "float"), ("epochs", "int"), ("activation", "choice")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--set minibatch=64 --set anneal=false", "--minibatch 64 --no-anneal"),
        ("--space lr=1e-5..1e-2:log --space epochs=2..9", "--lr 1e-5..1e-2:log --epochs 2..9"),
        ("--space default --space epochs=2..9", "--space default --epochs 2..9"),
    ],
)
def test_study_arguments_space_and_set_equal_field_options(old, new):
    assert understood(PLACE + old) == understood(PLACE + new)


def test_study_arguments_set_a_field_named_like_a_search_option():
    place = "tune r2d2 CartPole-v1 --steps 90_000 "
    assert understood(place + "--set eta=0.5")[1]["fixed"] == {"eta": 0.5}
    assert understood(place + "--eta 4 --search asha")[1]["how"] == {"eta": 4}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--lr 0.1..0.2 --space lr=1..2", "lr is given twice, also in space"),
        ("--lr 0.1 --set lr=0.2", "lr is given twice, also in set"),
        ("--max-episode-steps 9 --env max_episode_steps=8", "max_episode_steps is given twice"),
    ],
)
def test_study_arguments_refuse_a_field_given_twice(words, said):
    with pytest.raises(Mistake, match=said):
        understood(PLACE + words)


def test_study_arguments_pass_environment_options_by_name():
    assert understood(PLACE + "--max-episode-steps 9")[1]["known"]["env_options"] == {
        "max_episode_steps": 9
    }


def test_study_arguments_are_read_from_a_settings_file(tmp_path, capsys):
    file = tmp_path / "study.yaml"
    file.write_text(
        "algorithm: ppo\nenvironment: CartPole-v1\nsteps: 4096\ntrials: 4\nseeds: 2\nlr: 1e-3\n"
        "config: {minibatch: 64}\nspace: {epochs: 2..9}\nevaluate_limit: 100\n"
    )
    space, found = understood(f"tune --config {file} --lr 1e-5..1e-2:log --trials 8")
    assert space == {"epochs": "2..9", "lr": "1e-5..1e-2:log"}
    assert (found["fixed"], found["trials"], found["seeds"]) == ({"minibatch": 64}, 8, [0, 1])
    assert "evaluate_limit is for sterling train alone" in capsys.readouterr().err
    file.write_text("algorithm: ppo\nenvironment: CartPole-v1\nsteps: 4096\ntrails: 4\n")
    with pytest.raises(Mistake, match=r"study.yaml: unknown key 'trails'; did you mean trials\?"):
        understood(f"tune --config {file}")


def test_study_arguments_are_the_same_in_python(capsys):
    tuned = sterling.tune(
        "ppo", "probe:both", steps=512, trials=2, seeds=2, test_seeds=2, lr="1e-4..1e-1:log",
        length=8, minibatch=32, epochs=1, width=8, preset=False, workers=1, quiet=False,
    )  # fmt: skip
    assert list(tuned.fields) == ["lr"]
    assert str(tuned).startswith("Tuned(lr=")
    assert tuned.to_json()["incumbent"]["fields"] == tuned.fields
    assert "tuning ppo on probe:both, random" in capsys.readouterr().out
    with pytest.raises(Mistake, match="no field 'learning_rate': it is called lr here"):
        sterling.tune("ppo", "probe:both", steps=512, learning_rate="1e-4..1e-1")
