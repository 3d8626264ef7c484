"""The published scores are whole, and what is wrong with a file is said."""

import json

import pytest

from sterling.references import published_scores
from sterling.references.published_scores import (
    RULE,
    default_tolerance,
    find,
    load,
    read_references,
    task_name,
    version_suffix,
)
from sterling.types import Mistake


def test_every_published_scores_file_loads_with_explained_tolerances():
    references = load()
    assert len(references) > 2000
    assert {one.source.name for one in references} >= {"SB3 RL Zoo", "CleanRL", "CORL", "gymnax"}
    for one in references:
        if one.tolerance_from == RULE:
            made = default_tolerance(one.value, one.spread, one.spread_kind, one.seeds)
            assert one.tolerance == made, one


@pytest.mark.parametrize(
    ("algorithm", "environment", "source", "value", "steps"),
    [
        ("ppo", "CartPole-v1", "SB3 RL Zoo", 500.0, 100_000),
        ("dqn", "MountainCar-v0", "SB3 RL Zoo", -100.849, 120_000),
        ("td3", "Hopper-v1", "TD3 paper", 3564.1, 1_000_000),
        ("sac", "HalfCheetah-v4", "SimbaV2 repository", 11321.0, 1_000_000),
        ("ppo", "Breakout-MinAtar", "gymnax", 28.0, 10_000_000),
        ("iql", "hopper-medium-v2", "CORL", 67.53, 1_000_000),
        ("ppo", "HalfCheetah-v3", "Tianshou", 5783.9, 1_000_000),
    ],
)
def test_known_published_scores_are_found(algorithm, environment, source, value, steps):
    found = [
        one
        for one in find(algorithm, environment)
        if (one.source.name, one.environment, one.steps) == (source, environment, steps)
    ]
    assert value in [one.value for one in found]


def test_default_tolerance_of_published_scores():
    assert default_tolerance(-100.0) == 10.0
    assert default_tolerance(100.0, 50.0, "std over evaluation episodes", 1) == 50.0
    assert default_tolerance(10.0, 2.0, "std over seeds", 4) == pytest.approx(
        3.182, abs=1e-3
    )  # t_3 2 / 2


def test_published_score_task_names_ignore_version_and_prefix():
    assert task_name("PongNoFrameskip-v4") == task_name("ALE/Pong-v5") == "pong"
    assert task_name("CheetahRun-v1") == task_name("cheetah-run")
    assert task_name("Breakout-MinAtar") != task_name("Breakout-v5")
    assert (version_suffix("Hopper-v5"), version_suffix("cheetah-run")) == ("v5", None)
    assert {one.environment for one in find("TD3BC", "halfcheetah-medium-v2")} != set()
    versions = [one.environment for one in find("ppo", "HalfCheetah-v5")]
    assert versions[0] == "HalfCheetah-v5"
    assert "HalfCheetah-v3" in versions


GOOD = {"algorithm": "ppo", "environment": "A-v0", "value": 1, "tolerance": 0.1}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([{**GOOD, "reward": 2}], "entry 1: unknown reward"),
        ([GOOD, {"algorithm": "ppo"}], "entry 2: missing environment, missing tolerance"),
        ([{**GOOD, "value": float("nan")}], "value must be a finite number"),
        ([{**GOOD, "tolerance": -1.0}], "must not be negative"),
        ([{**GOOD, "returns": "test"}], "returns must be one of"),
        ([{**GOOD, "spread": 1.0}], "a spread needs a spread_kind"),
        ([GOOD, GOOD], "has ppo on A-v0 twice; add a variant"),
    ],
)
def test_invalid_published_score_entries_are_refused(tmp_path, entries, said):
    shared = {"metric": "return", "returns": "evaluation", "policy": "unknown", "taken": "last"}
    source = {"name": "x", "title": "x", "url": None, "commit": None}
    path = tmp_path / "x.json"
    path.write_text(
        json.dumps({"schema": 1, "source": source, "defaults": shared, "entries": entries})
    )
    with pytest.raises(Mistake, match=said):
        read_references(path)


def test_invalid_published_scores_file_is_refused(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("{")
    with pytest.raises(Mistake, match="not a file of published scores"):
        read_references(path)
    path.write_text('{"schema": 2}')
    with pytest.raises(Mistake, match="must have schema 1"):
        published_scores.read_references(path)
