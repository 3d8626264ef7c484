"""The commands that judge: what they print, write and answer."""

import argparse
import importlib
import json
import subprocess
import sys

import pytest

from sterling.types import Mistake


def do(command, *words):
    module = importlib.import_module(f"sterling.commands.{command}")
    parser = argparse.ArgumentParser()
    module.add_options(parser)
    return module.carry_out(parser.parse_args([str(word) for word in words]))


def run_folder(folder, algorithm, scores, environment="CartPole-v1", steps=100_000):
    folder.mkdir()
    seeds = list(range(len(scores)))
    facts = {"algorithm": algorithm, "environment": environment, "steps": steps, "seeds": seeds}
    (folder / "config.json").write_text(json.dumps(facts | {"config": {}}))
    final = {"return": {"per_seed": scores}}
    (folder / "result.json").write_text(json.dumps(facts | {"final": final, "failed_seeds": []}))
    return folder


def test_check_scores_command_passes_runs_within_the_published_band(tmp_path, capsys):
    folder = run_folder(tmp_path / "a", "ppo", [485.0, 480.0, 484.0, 488.0, 481.0])
    assert do("check_scores", folder) == 0
    told = capsys.readouterr().out
    assert "ppo on CartPole-v1, 100k steps, 5 seeds: 483.6 [479.6, 487.6] (by seed 485, 480" in told
    line = " ".join(told.splitlines()[2].split())
    assert line == "within 500.0 [475.0, 525.0] SB3 RL Zoo -"
    assert "500k steps, training returns" in told


def test_check_scores_command_cannot_tell_with_five_seeds_at_the_cap(tmp_path, capsys):
    assert do("check_scores", run_folder(tmp_path / "a", "ppo", [500.0] * 5)) == 0
    told = capsys.readouterr().out
    assert "5 seeds: 500.0 [239.1, 500.0]" in told
    assert told.splitlines()[2].split()[:2] == ["cannot", "tell"]


def test_check_scores_counts_failed_seeds_as_asked(tmp_path, capsys):
    folder = run_folder(tmp_path / "a", "ppo", [485.0, 480.0, 484.0, None, None])
    assert do("check_scores", folder) == 0
    told = capsys.readouterr().out
    assert "2 of 5 seeds failed; mean of the other 3: 483" in told
    assert "with failures at the worst, 0: 289.8" in told
    assert do("check_scores", folder, "--failed", "worst") == 1  # wholly below
    assert "289.8 [" in capsys.readouterr().out
    assert do("check_scores", folder, "--failed", "exclude") == 0


def test_check_scores_command_fails_runs_below_the_published_band(tmp_path, capsys):
    folder = run_folder(tmp_path / "a", "ppo", [100.0, 101.0, 99.0, 100.0, 100.0])
    assert do("check_scores", folder) == 1
    assert "below" in capsys.readouterr().out


def test_check_scores_command_decides_by_the_same_protocol_only(tmp_path, capsys):
    scores = [1000.0, 1001.0, 999.0, 1000.0, 1000.0]
    folder = run_folder(tmp_path / "a", "ppo", scores, "HalfCheetah-v5", 1_000_000)
    assert do("check_scores", folder) == 0
    assert do("check_scores", folder, "--strict") == 1


def test_check_scores_of_one_seed_or_an_unknown_task(tmp_path, capsys):
    one = run_folder(tmp_path / "a", "ppo", [3.0])
    unknown = run_folder(tmp_path / "b", "ppo", [3.0, 4.0], "Mine-v0")
    assert do("check_scores", one, unknown) == 0
    told = capsys.readouterr().out
    assert "cannot tell" in told
    assert "no published score is known" in told


@pytest.fixture
def theirs(tmp_path):
    path = tmp_path / "scores.json"
    clear = {"sac": {"Hopper": [30, 31, 32, 33, 34]}, "ppo": {"Hopper": [10, 11, 12, 13, 14]}}
    path.write_text(json.dumps(clear))
    return path


def test_compare_command_prints_the_verdict_in_words(theirs, capsys):
    assert do("compare", theirs) == 0
    told = capsys.readouterr().out
    assert "sac tends to score higher than ppo on Hopper: in 1.00 [>0.50, 1.00] of pairs" in told
    assert "difference of means 20.00" in told
    assert "about 5%" in told
    assert "5 seeds cannot exclude that up to 45 % of runs fail" in " ".join(told.split())


def test_compare_command_mentions_unseen_collapses_once(theirs, capsys):
    """By the closing text, and by no note of each group."""
    assert do("compare", theirs) == 0
    assert " ".join(capsys.readouterr().out.split()).count("cannot exclude that up to") == 1


def test_compare_as_json(theirs, capsys):
    assert do("compare", theirs, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    (pair,) = told["contests"][0]["pairs"]
    assert (pair["first"], pair["verdict"], pair["difference"]["value"]) == ("sac", "larger", 20.0)
    assert told["contests"][0]["standings"][0]["scores"] == [30, 31, 32, 33, 34]


def test_compare_runs_with_files(tmp_path, theirs, capsys):
    folder = run_folder(tmp_path / "a", "td3", [20.0, 21.0, 22.0, 23.0, 24.0], "Hopper")
    assert do("compare", theirs, f"ours={folder}") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "On Hopper 3 pairs are not compared: sac has 5 seeds, and between 3 labels" in told
    assert told.endswith("note: 5 seeds cannot exclude that up to 45 % of runs fail.")


def test_compare_decides_means_within_bounds(theirs, capsys):
    words = ("--about", "mean", "--within=0,50")
    assert do("compare", theirs, *words) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "The means of sac and ppo are not distinguished on Hopper" in told
    assert "at most 5% for every distribution within the bounds" in told
    with pytest.raises(Mistake, match="add --within LOW,HIGH, or leave out --about mean"):
        do("compare", theirs, "--about", "mean")
    with pytest.raises(Mistake, match="only with --about mean"):
        do("compare", theirs, "--within=0,50")
    with pytest.raises(Mistake, match="outside within"):
        do("compare", theirs, "--about", "mean", "--within=0,20")


def test_compare_with_nothing_to_compare(tmp_path, capsys):
    assert do("compare", run_folder(tmp_path / "a", "ppo", [1.0, 2.0])) == 0
    assert "nothing to compare" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--alpha", "2"], "between 0 and 1"), (["--tasks", "Ant"], "no run on Ant")],
)
def test_compare_command_refuses_invalid_options(theirs, words, said):
    with pytest.raises(Mistake, match=said):
        do("compare", theirs, *words)


def test_report_writes_a_page_and_pictures(theirs, tmp_path, capsys):
    assert do("report", theirs, "--out", tmp_path / "out", "--title", "Ours") == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out" / "index.html")
    kinds = {path.suffix for path in (tmp_path / "out").iterdir()}
    assert kinds == {".html", ".png", ".svg", ".pdf"}


@pytest.mark.parametrize("command", ["report", "compare", "check_scores"])
def test_help_needs_nothing_heavy(command):
    code = (
        f"import argparse, sys, sterling.commands.{command} as c\n"
        "c.add_options(argparse.ArgumentParser())\n"
        "print([m for m in ('jax', 'numpy', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"
