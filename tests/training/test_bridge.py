"""The examples of the bridge say how they are called, and can be called again."""

import runpy
import sys
from pathlib import Path

import pytest

import sterling
from sterling.types import Mistake

HOME = Path(__file__).parents[2] / "examples" / "bridge"
FILES = sorted(HOME.glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("words", [[], ["data"], ["data", "1", "2", "3", "4"]])
def test_bridge_example_without_arguments_prints_its_usage_line(monkeypatch, path, words):
    monkeypatch.setattr(sys, "argv", [str(path), *words])
    with pytest.raises(SystemExit) as told:
        runpy.run_path(str(path), run_name="__main__")
    assert str(told.value).startswith(f"usage: python examples/bridge/{path.name} ")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("name", ["jsrl", "pex"])
def test_bridge_example_trains_its_guide_policy_once(monkeypatch, tmp_path, name):
    """Also where what came after it failed."""
    calls = []

    def train(algorithm, environment, *, out=None, **fields):
        calls.append("learner" if out is None else f"guide {out}")
        if out is None:
            raise Mistake("the second phase fails")
        Path(out).mkdir(parents=True)
        Path(out, "config.json").touch()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sterling, "train", train, raising=False)
    monkeypatch.setattr(
        sterling, "resume", lambda path: calls.append(f"again {path}"), raising=False
    )
    example = runpy.run_path(str(HOME / f"{name}.py"))
    for _ in range(2):
        with pytest.raises(Mistake, match="second phase"):
            example["train"]("data/log", 10, 20, environment="CartPole-v1")
    folder = f"runs/{name}-guide-log-10"
    assert calls == [f"guide {folder}", "learner", f"again {folder}", "learner"]
