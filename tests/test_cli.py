"""The command line, from words to runs: what it understands, and what it says of the rest."""

import dataclasses
import errno
import json
import os
import re
import subprocess
import sys

import jax
import pytest
from every_case import every

from sterling.algorithms import ALGORITHMS, GROUPS, find
from sterling.cli import main
from sterling.cli_options import parse_command_line
from sterling.commands import train
from sterling.commands.options.algorithm_options import config_fields

TINY = ["--steps", "512", "--seeds", "2", "--envs", "2", "--length", "32", "--minibatch", "32",
        "--epochs", "1", "--evaluate-episodes", "2"]  # fmt: skip


def words(text):
    return parse_command_line(text.split())


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch):
    """However slow the machine is, what is refused is refused before a run is announced."""
    monkeypatch.setattr("sterling.report.live.live_progress.SILENT_SECONDS", 600.0)


def refused(text, capsys):
    """The one line that wrong words are answered with."""
    capsys.readouterr()
    try:
        code = main(text.split())
    except SystemExit as exit:
        code = exit.code
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert (code, len(lines), out) == (2, 1, ""), (lines, out)
    assert lines[0].startswith("sterling: ")
    return lines[0].removeprefix("sterling: ")


def test_train_command_parses_options_and_fields():
    chosen = words(
        "train ppo HalfCheetah-v5 --steps 1_000_000 --seeds 5 --out runs/a --lr 3e-4 --no-anneal "
        "--max_grad_norm=1 --log-std -1e-3 --target-kl inf --epochs 1e1 --env a=1 --env b=true "
        "--env c=word"
    )
    assert (chosen.algorithm, chosen.world) == ("ppo", "HalfCheetah-v5")
    assert (chosen.steps, chosen.seeds, str(chosen.out)) == (1_000_000, 5, "runs/a")
    assert chosen.env == [("a", 1), ("b", True), ("c", "word")]
    assert train.config_values(chosen) == {
        "lr": 3e-4, "anneal": False, "max_grad_norm": 1.0, "log_std": -1e-3,
        "target_kl": float("inf"), "epochs": 10,
    }  # fmt: skip


def test_negative_numbers_are_no_options():
    asked = parse_command_line(["data", "describe", "FILE", "--reference", "-20.27", "-1e-3"])
    assert asked.reference == [-20.27, -1e-3]
    assert words("train ppo X --steps 9 --log-std -inf").log_std == -float("inf")


def test_settings_that_were_not_given_are_not_passed_on():
    assert train.config_values(words("train sac Pendulum-v1 --steps 1e4")) == {}
    assert words("train sac Pendulum-v1 --steps 1e4").steps == 10_000


def test_options_may_stand_before_the_algorithm():
    chosen = words("train --lr 1e-3 ppo CartPole-v1 --steps 10 --seeds 3,7")
    assert (train.config_values(chosen), chosen.seeds) == ({"lr": 1e-3}, [3, 7])


@every("algorithm", ALGORITHMS)
def test_every_field_is_an_option_with_help(algorithm):
    _, fields = config_fields(algorithm)
    real = dataclasses.fields(find(algorithm).Config)
    assert [(f.name, f.kind) for f in fields] == [(f.name, f.type) for f in real], algorithm
    given = []
    for field, true in zip(fields, real, strict=True):
        assert field.comment, f"{algorithm}: {field.name} has no comment beside it"
        if field.kind == "bool":
            given.append(f"--{'' if true.default else 'no-'}{field.name}")
        else:
            parts = true.default if isinstance(true.default, tuple) else (true.default,)
            given.append(f"--{field.name}={','.join(map(str, parts))}")
    own = train.config_values(parse_command_line(["train", algorithm, "X", "--steps", "1", *given]))
    assert own == {true.name: true.default for true in real}, algorithm


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("train ppo X --steps 9 --lrr 1", "Unknown option --lrr; did you mean --lr? (see"),
        (
            "train ppo X --steps 9 --lrr 1 --wdth=2",
            "Unknown option --lrr; did you mean --lr?; Unknown option --wdth; did",
        ),
        ("train ppo X --steps 9 --batch 1", "Unknown option --batch; did you mean --minibatch?"),
        ("train ppo CartPole-v1 --seeds 2", "ppo has no budget. Give --steps N"),
        ("train iql nothere.hdf5 --updates 9", "there is no file nothere.hdf5"),
        (
            "train iql Pendulum-v1 --updates 9",
            "updates (and online fields) need a dataset: add --data FILE",
        ),
        ("train ppo CartPole-v1 --steps 300 --init none.zip", "init: there is no file none.zip"),
        (
            "check examples/first_use/hover.py",
            "examples/first_use/hover.py is not an algorithm: it lacks class Config. It holds an "
            "environment, examples/first_use/hover.py:Hover.",
        ),
        (
            "train ppo examples/first_use/hover.py --steps 300",
            "examples/first_use/hover.py names no environment. Write "
            "examples/first_use/hover.py:NAME; the file has Hover.",
        ),
        ("train ppo X --steps 9 --guide-steps x", "--guide-steps: 'x' is not a number"),
        (
            "train sac Pendulum-v1 --steps 510 --guiding expansion",
            "--guiding and --guide-steps need a guide",
        ),
        ("train ppo X --steps many", "--steps: 'many' is not a number"),
        ("train ppo X --steps 1.5", "--steps: '1.5' is not a whole number"),
        ("train ppo X --steps 9 --env a", "--env: 'a' is not of the form KEY=VALUE"),
        ("train ppo X --steps 9 --strategy x", "--strategy: invalid choice: 'x'"),
        ("trian", "there is no command 'trian'; did you mean train?"),
        (
            "train pppo CartPole-v1 --steps 9 --lr 1",
            "Unknown algorithm 'pppo'; did you mean ppo",
        ),
        (
            "train ppo CartPol-v1 --steps 9",
            "Unknown environment 'CartPol-v1'; did you mean CartP",
        ),
        (
            "train ppo CartPole-v1 --steps 9 --out /tmp/none",
            "--steps 9 is below one iteration of ppo",
        ),
        ("resume /nowhere", "/nowhere holds no run"),
        ("evaluate /nowhere", "/nowhere holds no run"),
        ("play /nowhere", "/nowhere holds no run"),
        ("list environments nonesuch", "No environment's name contains 'nonesuch'"),
    ],
)
def test_wrong_command_line_is_refused_in_one_line(text, answer, capsys):
    assert refused(text, capsys).startswith(answer)


def test_refused_run_says_nothing_of_what_it_would_have_had(monkeypatch, capsys):
    monkeypatch.setattr("sterling.report.live.live_progress.SILENT_SECONDS", 0.0)
    said = refused("train sac CartPole-v1 --steps 900 --env x=3", capsys)  # its warm-up would fit
    assert said.startswith("Environment CartPole-v1 has no option 'x'")
    said = refused("train dqn Pendulum-v1 --steps 900", capsys)  # its preset, and its title
    assert said.startswith("dqn does not support Box(")


def test_misspelt_model_size_suggests_the_name(capsys):
    said = refused("train sft reverse-text --model nan --updates 5", capsys)
    assert said.strip().endswith("config.json; did you mean nano?")


def test_out_of_memory_error_of_a_command_is_one_line(monkeypatch, capsys):
    def carry_out(chosen):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 5 bytes.")

    monkeypatch.setattr(train, "carry_out", carry_out)
    said = refused("train ppo CartPole-v1 --steps 9", capsys)
    assert said.startswith("out of memory (Out of memory allocating 5 bytes). Use fewer")


def test_full_disk_error_of_a_command_is_one_line(monkeypatch, capsys):
    def carry_out(chosen):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(train, "carry_out", carry_out)
    said = refused("train ppo CartPole-v1 --steps 9", capsys)
    assert said == "No space left on device. Free disk space, then run the command again"


@pytest.mark.parametrize("platform", ["nonesuch", "cuda"])
def test_missing_jax_platform_is_named_in_one_line(platform, tmp_path):
    line = ["-m", "sterling", "train", "ppo", "CartPole-v1", "--steps", "5000", "--out", "run"]
    done = subprocess.run(
        [sys.executable, *line],
        check=False,
        env=os.environ | {"JAX_PLATFORMS": platform},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:  # there is such a GPU
        return
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"sterling: JAX has no platform {platform!r}")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_command_line_expands_the_home_directory_in_paths(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    asked = []
    monkeypatch.setattr(train, "carry_out", lambda chosen: asked.append(chosen.out) or 0)
    assert main(["train", "ppo", "CartPole-v1", "--steps", "9", "--out=~/run"]) == 0
    assert asked == [tmp_path / "run"]


def test_help_is_quick_because_it_imports_no_other_package():
    show = "import sys; before = set(sys.modules); sys.argv = ['sterling', *{}]\n"
    show += "from sterling.cli import main\ntry: main()\nfinally:\n"
    show += "  new = {{name.partition('.')[0] for name in set(sys.modules) - before}}\n"
    show += "  print(sorted(new - set(sys.stdlib_module_names)))"
    for asked in (["--help"], ["train", "ppo", "--help"], ["list", "algorithms"]):
        command = [sys.executable, "-c", show.format(asked)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert output.splitlines()[-1] == "['sterling']"


def test_train_help_shows_fields_with_comments_and_defaults(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as exit:
        main(["train", "ppo", "--help"])
    text = capsys.readouterr().out
    assert exit.value.code == 0
    assert "--lr X                          Adam's initial step size (3e-4)" in text
    assert "--[no-]anneal " in text
    assert max(map(len, text.splitlines())) <= 100


def test_list_command_prints_algorithms_and_environments(capsys):
    assert main(["list", "algorithms"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(listed) == sorted(ALGORITHMS)
    labels = [line.removesuffix(":") for line in lines if line and not line.startswith("  ")]
    assert labels == list(GROUPS.values())
    at = next(number for number, line in enumerate(lines) if line.startswith("  ppo "))
    assert lines[at].startswith("  ppo               Proximal policy optimisation (Schulman 2017")
    assert lines.index("the usual ones:") < at < lines.index("on-policy, from fresh rollouts:")
    unclosed = [line for line in lines if line.count("(") != line.count(")")]
    assert unclosed == []  # no description is cut within a sentence
    assert main(["list", "environments", "halfcheetah"]) == 0
    assert "envpool    HalfCheetah-v5" in capsys.readouterr().out.splitlines()


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "run"
    assert main(["train", "ppo", "CartPole-v1", *TINY, "--out", str(folder)]) == 0
    return folder


def test_train_command_writes_a_run_folder(run_folder, capsys):
    names = {path.name for path in run_folder.iterdir()}
    assert {"config.json", "metrics.jsonl", "result.json", "curve.png", "checkpoints"} <= names
    config = json.loads((run_folder / "config.json").read_text())
    assert (config["config"]["length"], config["seeds"]) == (32, [0, 1])


def test_evaluate_command_prints_seeds_and_interval(run_folder, capsys):
    assert main(["evaluate", str(run_folder), "--episodes", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["seed", "0"], ["seed", "1"]]
    assert ", seeds " in lines[2]  # few of them stand beside the interval
    assert re.search(r"\(95% (t|bounded) interval over 2 seeds[:)]", lines[2])
    assert lines[2].endswith("2 episodes each")
    caution = "2 seeds cannot exclude that up to 78 % of runs fail"
    assert "\n".join(lines).count(caution) == 1  # in the interval if a score lies at a bound


def test_evaluate_command_takes_return_bounds(run_folder, capsys):
    words = ["evaluate", str(run_folder), "--episodes", "2", "--return-within", "5,6"]
    assert main(words) == 0
    told = capsys.readouterr()
    assert "declared upper bound 6 dropped" in told.out + told.err


def test_resuming_a_complete_run_shows_its_result(run_folder, capsys):
    before = (run_folder / "metrics.jsonl").read_bytes()
    assert main(["resume", str(run_folder)]) == 0
    assert "final return" in capsys.readouterr().out
    assert (run_folder / "metrics.jsonl").read_bytes() == before


def test_play_command_writes_a_film(run_folder, capsys):
    film = run_folder / "film.gif"
    assert main(["play", str(run_folder), "--video", str(film), "--seed", "1", "--steps", "5"]) == 0
    assert film.stat().st_size > 1000
    assert main(["play", str(run_folder), "--seed", "9"]) == 2
    assert "has no seed 9; it has 0, 1" in capsys.readouterr().err


def test_training_twice_into_a_folder_is_refused(run_folder, capsys):
    again = f"train ppo CartPole-v1 {' '.join(TINY)} --quiet --out {run_folder}"
    assert "already holds a run. Resume it with" in refused(again, capsys)


@pytest.mark.slow
def test_train_command_learns_from_a_dataset(tmp_path, capsys):
    data, out = tmp_path / "log", tmp_path / "run"
    make = f"data make CartPole-v1 --quality random --size 400 --seed 0 --out {data}"
    assert main(make.split()) == 0
    small = "--width 8 --batch 8 --evaluate-episodes 2 --quiet"
    assert main(f"train iql {data} --updates 30 --seeds 2 --out {out} {small}".split()) == 0
    assert "updates       30 per seed" in capsys.readouterr().out
    both = f"--environment CartPole-v1 --updates 20 --steps 20 --out {tmp_path / 'both'} {small}"
    assert main(f"train iql {data} {both}".split()) == 0
    assert "dip after it" in capsys.readouterr().out
    named = f"train iql CartPole-v1 --data {data} --updates 9 --top 0.5 --out {tmp_path / 'top'}"
    assert main(f"{named} {small}".split()) == 0
    assert refused(f"train iql {data} --data {data} --updates 9", capsys).startswith(
        "Two datasets are given"
    )
