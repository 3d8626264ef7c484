"""Where an interval lies against a published band, and what makes two measurements differ."""

import pytest

from sterling.report.published_verdicts import (
    band_verdict,
    check_published,
    finished_headlines,
    measurement_differences,
)
from sterling.report.runs.read_runs import read_results
from sterling.statistics import Estimate


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (10.0, 80.0, "below"),
        (120.0, 130.0, "above"),
        (91.0, 109.0, "within"),
        (90.0, 110.0, "within"),
        (95.0, 120.0, "within or above"),
        (80.0, 95.0, "cannot tell"),
        (80.0, 120.0, "cannot tell"),
        (None, None, "cannot tell"),
    ],
)
def test_band_verdict_of_interval_against_published_band(low, high, said):
    middle = 0.0 if low is None else (low + high) / 2
    made = Estimate(middle, low, high, 1 if low is None else 5, "t", 0.95)
    assert band_verdict(made, 90.0, 110.0) == said


def checked(run, scores, **options):
    results, _ = read_results([run("a", *scores, **options)])
    ((result, made),) = finished_headlines(results)
    return result, {
        (one.reference.source.name, one.reference.environment): one
        for one in check_published(result, made)
    }


def test_published_verdict_is_comparable_only_for_the_same_protocol(run):
    scores = ("ppo", [480.0, 484.0, 488.0, 481.0, 486.0])
    _, checks = checked(run, scores, environment="CartPole-v1", steps=99_840)
    zoo = checks["SB3 RL Zoo", "CartPole-v1"]
    assert (zoo.comparable, zoo.verdict, zoo.reference.low) == (True, "within", 475.0)
    cleanrl = checks["CleanRL", "CartPole-v1"]
    assert cleanrl.differs == ["500k steps", "training returns"]


def test_published_verdict_of_five_capped_seeds_is_cannot_tell(run):
    at_the_cap = ("ppo", [499.0, 500.0, 500.0, 500.0, 500.0])  # [237, 500]
    _, checks = checked(run, at_the_cap, environment="CartPole-v1", steps=99_840)
    assert checks["SB3 RL Zoo", "CartPole-v1"].verdict == "cannot tell"


def test_published_verdict_lists_differing_version_budget_and_protocol(run):
    _, checks = checked(run, ("ppo", [1.0, 2.0]), environment="HalfCheetah-v5", steps=1_000_000)
    assert checks["SB3 RL Zoo", "HalfCheetah-v3"].differs == ["v3"]
    assert checks["SLM-Lab", "HalfCheetah-v5"].differs == ["10M steps", "training returns"]
    assert "max over training" in checks["Tianshou", "HalfCheetah-v3"].differs
    assert checks["SB3 RL Zoo", "HalfCheetah-v3"].verdict == "below"


def test_published_verdict_mentions_pixels_only_where_there_is_a_choice(run):
    result, checks = checked(
        run, ("dreamerv3", [800.0]), environment="WalkerWalk-v1", steps=500_000
    )
    pixels = [one for one in checks.values() if one.reference.observations == "pixels"]
    assert "pixels" in measurement_differences(pixels[0].reference, result, choice=True)
    _, atari = checked(lambda *a, **k: run("b", *a[1:], **k), ("dqn", [20.0]),
                       environment="PongNoFrameskip-v4", steps=10_000_000)  # fmt: skip
    assert all("pixels" not in one.differs for one in atari.values())


def test_published_headline_excludes_failed_seeds_and_unfinished_runs(run):
    results, _ = read_results(
        [run("a", "ppo", [1.0, None, 3.0]), run("b", "ppo", [1.0], finished=False)]
    )
    ((_, made),) = finished_headlines(results)
    assert made.made is None
    assert (made.survivors.value, made.survivors.n) == (2.0, 2)
    ((_, counted),) = finished_headlines(results, failed=-1.0)
    assert (counted.made.value, counted.made.n) == (1.0, 3)
