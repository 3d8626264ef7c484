"""The words of a study: fields by value and by range, as options, in Python and from files."""

from multiprocessing import Pipe
from types import SimpleNamespace

import cloudpickle
import pytest

import sterling
from sterling.cli_options import parse_command_line
from sterling.commands import tune as command
from sterling.system.terminal_messages import (
    checked_first,
    checks_passed,
    each_notice_once,
    print_notice,
)
from sterling.tuning import tune
from sterling.tuning.jobs.job_pool import WorkerPool
from sterling.tuning.search_space import read_space
from sterling.tuning.study_arguments import sort_arguments, study_arguments
from sterling.types import Mistake

WORLD = """
import gymnasium
import numpy as np


class World(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.clock = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.clock += 1
        return np.zeros(2, np.float32), 1.0, self.clock == 5, False, {"speed/x": 1.0}
"""
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


def test_each_distinct_notice_of_trials_in_processes_is_printed_once(tmp_path, capsys):
    pool = WorkerPool(SimpleNamespace(folder=tmp_path), 0, lambda: False)
    with each_notice_once():
        for notices in (["one", "two"], ["two", "three"]):
            ours, theirs = Pipe()
            theirs.send_bytes(cloudpickle.dumps(("done", [], notices)))
            assert pool._answer(ours) == []
        print_notice("one")
    assert capsys.readouterr().err == "one\ntwo\nthree\n"
    print_notice("one")
    assert capsys.readouterr().err == "one\n"


def test_a_notice_of_a_run_is_printed_once_and_again_by_the_next_run(capsys):
    for _ in range(2):
        with checked_first():
            print_notice("of the training world")
            checks_passed()
            print_notice("of the training world")
        with each_notice_once(), checked_first():
            print_notice("of a trial")
    assert capsys.readouterr().err == "of the training world\nof a trial\n" * 2


@pytest.mark.slow
def test_tune_prints_notices_of_trials_in_processes_once(tmp_path, capfd):
    path = tmp_path / "world.py"
    path.write_text(WORLD)
    tune(
        "ppo", f"{path}:World", steps=256, trials=4, seeds=1, test_seeds=1, envs=2, length=8,
        minibatch=16, epochs=1, width=8, preset=False, workers=2, space={"lr": "1e-4..1e-2:log"},
        env_options={"workers": 0, "channels": "speed/x"}, out=tmp_path / "study",
    )  # fmt: skip
    said = "info['speed/x'] is reported as the channel speed_x"
    assert capfd.readouterr().err.count(said) == 1
