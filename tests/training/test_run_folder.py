"""The run folder: never overwritten, never half written."""

import json
import os
import subprocess
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from sterling.training.saving import run_folder
from sterling.types import Mistake


def test_run_folder_is_created_with_its_parents(tmp_path: Path) -> None:
    path = run_folder.create(tmp_path / "runs" / "x")
    assert path.is_dir()
    assert run_folder.create(path) == path  # nothing in it yet: still free
    parts = {
        run_folder.checkpoints_path(path),
        run_folder.metrics_path(path),
        run_folder.curve_path(path),
    }
    assert {part.parent for part in parts} == {path}


def test_resume_command_quotes_the_run_folder_path() -> None:
    assert run_folder.resume_command("runs/s p") == "sterling resume 'runs/s p'"
    assert run_folder.resume_command(Path("runs/x")) == "sterling resume runs/x"


@pytest.mark.parametrize("trace", ["config.json", "result.json", "metrics.jsonl", "checkpoints"])
def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path, trace: str) -> None:
    (tmp_path / trace).write_text("{}")
    with pytest.raises(Mistake) as caught:
        run_folder.create(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} already holds a run. Resume it with `sterling resume {tmp_path}`, "
        "or choose another --out."
    )


def test_run_folder_create_refuses_a_file_path(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    for path in (tmp_path / "x", tmp_path / "x" / "y"):
        with pytest.raises(Mistake, match="cannot be a run folder"):
            run_folder.create(path)


def test_run_folder_config_and_result_round_trip(tmp_path: Path) -> None:
    assert run_folder.read_result(tmp_path) is None
    run = {"algorithm": "ppo", "environment": "CartPole-v1", "steps": 1, "seeds": [0]}
    settings = {"target_kl": float("inf"), "hidden": (64, 64), "out": tmp_path}
    run_folder.write_config(tmp_path, run | {"config": settings})
    run_folder.write_result(tmp_path, {"return": jnp.asarray([1.0, 2.5]), "n": np.int64(3)})
    read = {"target_kl": float("inf"), "hidden": [64, 64], "out": str(tmp_path)}
    assert run_folder.read_config(tmp_path) == run | {"config": read}
    assert run_folder.read_result(tmp_path) == {"return": [1.0, 2.5], "n": 3}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "result.json"]


def test_config_json_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}')
    with pytest.raises(Mistake, match="is not a run's: it has no algorithm, environment"):
        run_folder.read_config(tmp_path)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    run_folder.write_result(tmp_path, {"n": 1})
    with pytest.raises(Mistake, match="cannot be written as JSON"):
        run_folder.write_result(tmp_path, {"n": object()})
    os.chmod(tmp_path / "result.json", 0o444)
    (tmp_path / f".result.json.partial-{os.getpid()}").mkdir()  # the partial file cannot be opened
    with pytest.raises(OSError, match="directory"):
        run_folder.write_result(tmp_path, {"n": 2})
    assert run_folder.read_result(tmp_path) == {"n": 1}


def ended() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        pass
    return process.pid


def test_partial_files_of_dead_processes_are_removed_on_resume(tmp_path: Path) -> None:
    dead = ended()
    parts = [f".{name}.json.partial-" for name in ("config", "result")]
    for part in parts:
        (tmp_path / f"{part}{dead}").write_text("{")
        (tmp_path / f"{part}{os.getppid()}").write_text("{")  # whoever that is writes still
    (tmp_path / "notes.partial-1").write_text("mine")
    with run_folder.lock(tmp_path):
        left = {each.name for each in tmp_path.iterdir()}
    assert left == {"lock", "notes.partial-1", *(f"{part}{os.getppid()}" for part in parts)}


def test_partial_files_of_dead_processes_are_removed_on_rewrite(tmp_path: Path) -> None:
    dead = ended()
    old, new = (tmp_path / f".x[1].json.partial-{number}" for number in (dead, ended()))
    other, alive = tmp_path / f".y.json.partial-{dead}", tmp_path / ".x[1].json.partial-1"
    for path in (old, new, other, alive):
        path.write_text("{")
    for path in (old, other, alive):
        os.utime(path, (0, 0))
    run_folder.write_json(tmp_path / "x[1].json", {})
    left = {each.name for each in tmp_path.iterdir()}  # another machine may be writing the new one
    assert left == {"x[1].json", new.name, other.name, alive.name}


def test_missing_run_folder_suggests_the_nearest_name(tmp_path: Path) -> None:
    run_folder.write_config(run_folder.create(tmp_path / "cartpole"), {})
    with pytest.raises(Mistake, match=r"cartpol holds no run; did you mean .*cartpole\?"):
        run_folder.read_config(tmp_path / "cartpol")
    with pytest.raises(Mistake, match="holds no run; start one"):
        run_folder.read_config(tmp_path / "elsewhere" / "x")


def test_folder_of_runs_is_refused_with_the_runs_inside(tmp_path: Path) -> None:
    run = dict.fromkeys(run_folder.REQUIRED_KEYS, 1)
    for name, config in {"b": run, "deep/a": run, "model": {"model_type": "qwen2"}}.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    with pytest.raises(Mistake) as said:
        run_folder.read_config(tmp_path)
    inside = f"{tmp_path}/b and {tmp_path}/deep/a"
    assert str(said.value) == f"{tmp_path} is not a run, but holds 2 runs. Name one: {inside}"


def test_damaged_config_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a": ')
    with pytest.raises(Mistake, match=r"config.json is damaged"):
        run_folder.read_config(tmp_path)


def test_environment_facts_hold_versions_and_hardware_as_json() -> None:
    facts = run_folder.environment_facts()
    assert json.loads(json.dumps(facts)) == facts
    packages = "sterling jax jaxlib equinox optax envpool gymnasium numpy python"
    assert set(facts["versions"]) == set(packages.split())
    assert facts["versions"]["numpy"] == np.__version__
    assert facts["hardware"]["cores"] == os.cpu_count()
    assert facts["hardware"]["memory"] > 1e8
    assert facts["hardware"]["backend"] == "cpu"
    assert facts["time"].endswith("+00:00")


def test_git_facts_hold_the_commit_and_dirty_state(tmp_path: Path) -> None:
    assert run_folder.git_facts(tmp_path) is None

    def git(*words: str) -> str:
        name = ["-c", "user.name=x", "-c", "user.email=x@y"]
        asked = ["git", "-C", str(tmp_path), *name, *words]
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()

    code = tmp_path / "code"
    code.mkdir()
    (code / "a.py").write_text("1")
    git("init")
    git("add", ".")
    assert run_folder.git_facts(code) is None  # no commit yet
    git("commit", "-m", "x")
    clean = {"commit": git("rev-parse", "HEAD"), "dirty": False}
    assert run_folder.git_facts(code) == clean
    (tmp_path / "result.json").write_text("{}")
    assert run_folder.git_facts(code) == clean
    (code / "a.py").write_text("2")
    assert run_folder.git_facts(code) == clean | {"dirty": True}
