"""The speed report's arithmetic, on numbers that a person can check."""

import importlib.util
import sys
from pathlib import Path

import pytest

SPEED = Path(__file__).parents[2] / "benchmarks" / "speed"


def load(name):
    spec = importlib.util.spec_from_file_location(f"speed_{name}", SPEED / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


report, bounds = load("report"), load("bounds")


def results(**cases):
    found = {name.replace("__", "/"): values for name, values in cases.items()}
    return {"measurements": found, "sac_update_flops": 5e8}


def seconds(*values):
    return [{"seconds": value} for value in values]


def rates(*values):
    return [{"seconds": 1.0, "steps_per_second": value} for value in values]


def test_speed_report_compares_seconds_with_the_peers_best_variant():
    found = results(
        cartpole__sb3=seconds(100, 100, 100),
        cartpole__sb3_one_thread=seconds(30, 40, 90),
        cartpole__sterling_cold=seconds(10, 10, 18),
    )
    (row,) = report.compare(found)
    assert row["against"] == "cartpole/sb3_one_thread"
    assert (row["low"], row["median"], row["high"]) == (3.0, 4.0, 5.0)
    assert row["reached"]


def test_speed_report_compares_rates_with_the_fastest_variant():
    found = results(
        ppo__sb3_dummy=rates(10), ppo__sb3_subprocess=rates(20), ppo__sb3_dummy_one_thread=rates(5),
        ppo__sterling=rates(79),
    )  # fmt: skip
    (row,) = report.compare(found)
    assert row["against"] == "ppo/sb3_subprocess"
    assert row["median"] == pytest.approx(3.95)
    assert not row["reached"]


def test_speed_report_judges_a_time_limit_by_the_median():
    (row,) = report.compare(results(startup__help=seconds(0.2, 9.0, 0.3)))
    assert row["reached"]
    (row,) = report.compare(results(startup__help=seconds(0.2, 1.6, 1.7)))
    assert not row["reached"]


def test_speed_report_share_of_matrix_rate_uses_the_faster_library():
    found = results(
        sac__matrix_jax=[{"flops_per_second": 4e11}],
        sac__matrix_torch=[{"flops_per_second": 2e11}],
        sac__sterling=rates(400),
    )
    assert report.shares(found) == {"sac/sterling": pytest.approx(0.5)}


def test_speed_report_sums_compile_stages_per_program():
    stages = {"trace": 0.5, "lower": 0.25, "compile": 0.25}
    compiled = {"small": {"compile": 0.5}, "large": stages}
    rows = report.programs({"measurements": {"a/b": [{"compile": compiled}]}})
    assert rows == [["a/b", "1.50", "`large` 1.00, `small` 0.50"]]


def test_sac_update_flops_of_one_unit_networks():
    # obs 1, action 1, width 1: policy 1 + 1 + 2 = 4 multiply-adds, critic 2 + 1 + 1 = 4
    # target 4 + 8; critics 2 (4 + 8 - 2); policy 4 + 8 + 8 + (8 - 1); two operations each
    assert bounds.sac_update_flops(1, 1, 1, 1) == 2 * (12 + 20 + 27)


def test_speed_report_says_when_only_the_median_reaches_a_target():
    row = {"kind": "at least", "target": 4.0, "low": 3.2, "high": 7.2, "reached": True}
    assert report.reached(row) == "by the median, not by every repetition"
    assert report.reached(row | {"low": 4.0}) == "yes"
    assert report.reached(row | {"reached": False}) == "**no** by the median, by some repetitions"
    assert report.reached(row | {"reached": False, "high": 3.9}) == "**no**"
    limit = {"kind": "at most", "target": 1.5, "low": 0.2, "high": 9.0, "reached": True}
    assert report.reached(limit) == "by the median, not by every repetition"
    assert report.reached(limit | {"high": 1.5}) == "yes"
