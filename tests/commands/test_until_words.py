"""Words about training and words about runs do not mix, and none is passed over in silence."""

import json
import os
import signal

import pytest

from sterling.cli import main
from sterling.training.saving import tensor_file

STUDY = (
    "compare fast=ppo:lr=0.01 slow=ppo:lr=0 --until-decided --environment probe:both-continuous "
    "--steps 2048 --max-seeds 7 --per-look 7 --no-preset --json"
)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compare ppo sac", "are algorithms, not runs. Add --until-decided"),
        ("compare runs/a --steps 5", "--steps has an effect only with --until-decided"),
        ("compare runs/a --max-seeds 3", "--max-seeds has an effect only with --until-decided"),
        ("compare runs/a --per-look 5", "--per-look has an effect only with --until-decided"),
        ("compare runs/a --no-preset", "--no-preset has an effect only with --until-decided"),
        ("compare ppo sac --until-decided --steps 5", "--until-decided needs --environment"),
        (
            "compare ppo ppo --until-decided --environment X --steps 5 --tasks X",
            "Leave out --tasks",
        ),
        ("compare ppo --until-decided --environment X --steps 5", "at least two different labels"),
    ],
)
def test_compare_command_refuses_wrong_until_decided_options_in_one_line(
    words, said, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--key -1", "key must be a whole number of at least 0"),
        ("--failed nan", "failed must be a finite number"),
        ("--environment CartPoel-v1", "did you mean CartPole-v1"),
        ("--per-look 0", "0 seeds per look and at most 7 seeds"),
    ],
)
def test_compare_until_decided_refuses_impossible_trainings_beforehand(
    words, said, capsys, tmp_path
):
    assert main([*STUDY.split(), *words.split(), "--out", str(tmp_path / "study")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_compare_until_decided_prints_json(capsys, tmp_path):
    assert main([*STUDY.split(), "--out", str(tmp_path / "study")]) == 0
    (decision,) = json.loads(capsys.readouterr().out)["decisions"]
    assert (decision["first"], decision["second"]) == ("fast", "slow")
    assert decision["verdict"] == "larger"


@pytest.mark.slow
def test_compare_until_decided_stopped_by_sigterm_says_how_to_resume(tmp_path, capsys, monkeypatch):
    """A signal in a part's checkpoint is answered by the part, which is a run like every other."""

    def then(write):
        def both(*given):
            made = write(*given)
            os.kill(os.getpid(), signal.SIGTERM)
            return made

        return both

    monkeypatch.setattr(tensor_file, "write", then(tensor_file.write))
    with pytest.raises(SystemExit) as left:
        main([*STUDY.split(), "--out", str(tmp_path / "study")])
    assert left.value.code == 75
    out, err = capsys.readouterr()
    assert out == ""
    goes_on = "The same command resumes the comparison where it stopped."
    assert err.splitlines() == [goes_on]
