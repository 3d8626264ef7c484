"""Benchmarks that go on where they stopped put no numbers of two commits under one commit."""

import argparse
import importlib
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "statistics"
BEGUN = {"commit": "a" * 40, "date": "", "command": "", "hardware": {}, "versions": {}}


@pytest.fixture
def verdicts(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    found = importlib.import_module("verdicts")
    monkeypatch.setattr(found.evidence, "begin", lambda: BEGUN)
    return found


def simulated(verdicts, monkeypatch, out, names):
    """Return the cells that were simulated of those that a group has."""
    tried = []

    def cells(trials):
        for name in names:
            yield name, lambda name=name: tried.append(name) or {"trials": trials}

    monkeypatch.setattr(verdicts, "errors", cells)
    options = argparse.Namespace(out=out, only=["errors"], like="", trials=10)
    verdicts.simulate(options)
    return tried


def test_resumed_benchmark_continues_only_at_the_same_commit(verdicts, monkeypatch, tmp_path):
    out = tmp_path / "made.json"
    assert simulated(verdicts, monkeypatch, out, ["a | 5"]) == ["a | 5"]
    assert simulated(verdicts, monkeypatch, out, ["a | 5", "b | 5"]) == ["b | 5"]
    monkeypatch.setattr(verdicts.evidence, "begin", lambda: BEGUN | {"commit": "b" * 40})
    assert simulated(verdicts, monkeypatch, out, ["a | 5", "b | 5"]) == []  # complete: stays
    three = ["a | 5", "b | 5", "c | 5"]
    assert simulated(verdicts, monkeypatch, out, three) == three
    assert {block["commit"] for block in json.loads(out.read_text())["provenance"]} == {"b" * 40}
