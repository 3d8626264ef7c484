"""A run of a file's algorithm in a file's world, by the command line, from its beginning to its
report; and names that a package registers."""

import json

import jax
import numpy as np
import pytest

import sterling
from sterling.cli import main
from sterling.cli_options import parse_command_line
from sterling.commands import train
from sterling.envs.registry import find_backend
from sterling.language import worlds
from sterling.training.assembly.build_run import build_first_phase, make_world
from sterling.training.assembly.build_sources import LAYERS
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.settings import Settings
from sterling.types import Mistake

TINY = ["--steps", "512", "--seeds", "2", "--evaluate-episodes", "2", "--quiet"]
SHORT = ["--env", "max_episode_steps=9"]


@pytest.fixture(scope="module")
def run(written, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(written)
        words = ["train", "mine.py", "maze.py:make", *TINY, *SHORT, "--limit", "0.25"]
        assert main([*words, "--out", str(folder)]) == 0
    return folder


def test_user_code_files_are_stored_in_config_with_their_hash(run, written):
    config = json.loads((run / "config.json").read_text())
    assert config["algorithm"] == f"{written}/mine.py"
    assert config["environment"] == f"{written}/maze.py:make"
    assert set(config["code"]) == {f"{written}/mine.py", f"{written}/maze.py"}
    assert (config["custom_algorithm"], config["custom_environment"]) == (False, False)
    assert (config["config"]["limit"], config["config"]["width"]) == (0.25, 8)
    result = json.loads((run / "result.json").read_text())
    assert (result["algorithm"], result["environment"]) == ("mine", "maze:make")


def test_run_of_user_code_is_evaluated(run, capsys):
    assert main(["evaluate", str(run), "--episodes", "2"]) == 0
    assert "seed 0" in capsys.readouterr().out


@pytest.mark.slow
def test_run_of_user_code_is_compared_and_reported(run, tmp_path, capsys):
    assert main(["compare", str(run)]) == 0
    assert main(["report", str(run), "--out", str(tmp_path / "page")]) == 0
    shown = capsys.readouterr().out
    assert "mine on maze:make rests on 2 seeds" in " ".join(shown.split())
    assert "mine" in (tmp_path / "page" / "index.html").read_text()


def test_resume_warns_of_a_changed_user_code_file(run, written, capsys):
    file = written / "mine.py"
    before = file.read_text()
    try:
        file.write_text(before + "# a remark\n")
        assert main(["resume", str(run), "--steps", "1024", "--quiet"]) == 0
    finally:
        file.write_text(before)
    said = [line for line in capsys.readouterr().err.splitlines() if "has changed" in line]
    assert said == [f"{file} has changed since the run began; the new code is used"]
    assert json.loads((run / "result.json").read_text())["steps"] == 1024


def test_resume_names_a_missing_user_code_file(run, written):
    (written / "maze.py").rename(written / "away.py")
    try:
        with pytest.raises(Mistake, match=r"there is no file .*maze.py"):
            sterling.resume(run)
    finally:
        (written / "away.py").rename(written / "maze.py")


@pytest.mark.slow
def test_seed_processes_and_tuning_trials_import_user_code_files(
    written, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(written)
    apart = ["train", "mine.py", "maze.py:make", *TINY, *SHORT, "--strategy", "processes"]
    assert main([*apart, "--out", str(tmp_path / "apart")]) == 0
    together = ["train", "mine.py", "maze.py:make", *TINY, *SHORT]
    assert main([*together, "--out", str(tmp_path / "together")]) == 0
    scores = [json.loads((tmp_path / name / "result.json").read_text())["final"]["return"]
              for name in ("apart", "together")]  # fmt: skip
    assert scores[0]["per_seed"] == scores[1]["per_seed"]
    study = ["tune", "mine.py", "maze.py:make", "--steps", "512", "--trials", "2", "--seeds", "1"]
    study += ["--test-seeds", "2", "--space", "lr=1e-4..1e-2:log", "--workers", "2", "--quiet"]
    assert main([*study, *SHORT, "--out", str(tmp_path / "study")]) == 0
    assert "# mine on maze:make, tuned by random" in (tmp_path / "study/report.md").read_text()
    assert main(["tune", "--resume", str(tmp_path / "study"), "--quiet"]) == 0


@pytest.mark.slow
def test_user_algorithms_are_compared_until_decided(written, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(written)
    words = ["compare", "mine.py", "small=mine.py:lr=1e-5", "--until-decided", "--steps", "512"]
    words += ["--environment", "maze.py:make", "--max-seeds", "6", "--per-look", "6"]
    assert main([*words, "--out", str(tmp_path / "study")]) == 0
    shown = capsys.readouterr().out
    assert "\nmaze:make\n" in shown
    assert "mine on maze:make, seeds 0 to 5" in shown
    assert {"mine", "small"} <= {path.name for path in (tmp_path / "study").iterdir()}


def test_entry_point_algorithms_and_environments_are_found_and_listed(installed, capsys):
    chosen = parse_command_line(["train", "maze-ppo", "maze-3", *TINY, "--limit", "0.5"])
    assert train.config_values(chosen) == {"limit": 0.5}
    settings = resolve_settings("maze-ppo", "maze-3", steps=4_096, fields={"limit": 0.5})
    assert (settings.title, settings.config.width) == ("maze-ppo", 8)
    assert Settings.from_json(settings.to_json()) == settings
    world = make_world(settings)
    assert world.spec.action.n == 2
    assert main(["list", "algorithms"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[-1].endswith("(of maze-pack 1.2: packed_mine)")
    assert told.err == (
        "'ppo' is Sterling's own; that of maze-pack 1.2 (packed_mine) is not used\n"
    )
    assert main(["list", "environments", "maze-3"]) == 0
    assert capsys.readouterr().out == "world      maze-3  (of maze-pack 1.2: packed_maze:make)\n"
    assert find_backend("maze-3")[0] == "task"


def test_entry_point_source_layer_wraps_rollouts_and_is_listed(installed, capsys):
    def run(sources):
        settings = resolve_settings("ppo", "CartPole-v1", steps=4_096, sources=sources)
        assert Settings.from_json(settings.to_json()) == settings
        return build_first_phase(settings).source

    keys = jax.random.split(jax.random.key(0), 1)
    agent = build_first_phase(resolve_settings("ppo", "CartPole-v1", steps=4_096)).agent
    rewards = [run(each).live(agent, keys)[1].reward for each in ("", "doubled", "doubled:3")]
    assert float(rewards[0].sum()) > 0.0
    for factor, found in zip((2.0, 3.0), rewards[1:], strict=True):
        np.testing.assert_array_equal(found, factor * rewards[0])
    place = str(installed / "packed_source.py")
    code = resolve_settings("ppo", "CartPole-v1", steps=4_096, sources=f"{place}:5").to_json()[
        "code"
    ]
    assert set(code) == {place}
    both = run(f"doubled+{place}:5").live(agent, keys)[1].reward
    np.testing.assert_array_equal(both, 10.0 * rewards[0])
    capsys.readouterr()
    assert main(["list", "sources"]) == 0
    told = capsys.readouterr()
    words = [line.split()[0] for line in told.out.splitlines()]
    assert words == [*LAYERS, "doubled"]
    assert told.out.endswith("(of maze-pack 1.2: packed_source:LAYER)\n")
    assert told.err.startswith("'plr' is Sterling's own; that of maze-pack 1.2 (packed")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("dubled", "Unknown sources='dubled'; did you mean doubled"),
        ("doubled:x", "write doubled:2.0 or doubled:factor=2.0"),
        ("doubled:1,2", "write doubled:2.0 or doubled:factor=2.0"),
        ("go-explore:1", "go-explore takes no options"),
        ("nowhere.py", "nowhere.py"),
        ("packed_maze.py", "packed_maze.py has no 'LAYER'"),
    ],
)
def test_invalid_source_layer_is_refused_in_one_line(words, said, installed, monkeypatch):
    monkeypatch.chdir(installed)
    with pytest.raises(Mistake) as told:
        resolve_settings("ppo", "CartPole-v1", steps=4_096, sources=words)
    assert said in str(told.value)
    assert "\n" not in str(told.value)


def test_entry_point_language_tasks_are_found_by_name(installed):
    assert worlds.find_world("plus-one").levels == range(1)
