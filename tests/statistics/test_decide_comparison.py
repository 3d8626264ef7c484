"""AdaStop: what it decides, what it asks for, and how often it is wrong."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from sterling.statistics import compare
from sterling.statistics.comparisons.permutation_law import find_boundary, joint_hypotheses
from sterling.types import Mistake


def verdicts(made):
    return {(one.first, one.second): one.verdict for one in made.decisions}


def four(runs):
    """Four algorithms spread like those of the tutorial: two apart, two alike below."""
    rng = np.random.default_rng(2)
    laws = {"PPO": (2900, 1300), "DDPG": (880, 550), "SAC": (4540, 420), "TRPO": (1000, 500)}
    return {name: rng.normal(mean, sd, runs) for name, (mean, sd) in laws.items()}


def test_comparison_says_next_runs_and_stops_decided_algorithms():
    scores = four(25)
    first = compare({name: runs[:3] for name, runs in scores.items()})
    assert first.next_runs == {"DDPG": 2, "PPO": 2, "SAC": 2, "TRPO": 2}
    assert set(verdicts(first).values()) == {"undecided"}
    assert (first.interim, first.finished, first.boundaries) == (0, False, ())
    second = compare({name: runs[:10] for name, runs in scores.items()})
    assert (
        second.to_json()["boundaries"][0] is None
    )  # five runs of four are too few to decide anything
    assert verdicts(second) == {
        ("PPO", "DDPG"): "undecided", ("PPO", "SAC"): "smaller", ("PPO", "TRPO"): "undecided",
        ("DDPG", "SAC"): "smaller", ("DDPG", "TRPO"): "undecided", ("SAC", "TRPO"): "larger",
    }  # fmt: skip
    assert second.next_runs == {"DDPG": 5, "PPO": 5, "TRPO": 5}
    counts = {"DDPG": 25, "PPO": 15, "SAC": 10, "TRPO": 25}
    last = compare({name: scores[name][:count] for name, count in counts.items()})
    assert last.finished
    assert last.next_runs == {}
    found = compare({name: scores[name][: counts[name]] for name in scores})
    assert verdicts(found) == {
        ("PPO", "DDPG"): "larger", ("PPO", "SAC"): "smaller", ("PPO", "TRPO"): "larger",
        ("DDPG", "SAC"): "smaller", ("DDPG", "TRPO"): "equal", ("SAC", "TRPO"): "larger",
    }  # fmt: skip
    assert last.runs == counts
    assert str(second.decisions[1]).startswith(
        "PPO tends to score lower than SAC: higher in 0.11 ["
    )


def test_comparison_decisions_are_unchanged_by_more_runs():
    scores = four(25)
    short, long = (
        compare({name: runs[:count] for name, runs in scores.items()}) for count in (10, 25)
    )
    assert long.boundaries[:2] == short.boundaries
    for early, late in zip(short.decisions, long.decisions, strict=True):
        assert early.verdict == "undecided" or early == late


def test_comparison_is_deterministic_by_key():
    scores = four(10)
    assert compare(scores, key=5) == compare(scores, key=5)
    assert compare(scores, key=5).boundaries != compare(scores, key=6).boundaries


def test_comparison_refuses_too_few_runs_for_the_level():
    three = {"a": [1.0, 2, 3], "b": [4.0, 5, 6]}
    with pytest.raises(Mistake, match=r"3 runs of each in 1 look.*take at least 5 runs of each"):
        compare(three, interims=1, per_interim=3)
    with pytest.raises(Mistake, match=r"3 runs .*at least 5"):
        compare(three, interims=1, per_interim=None)
    five = {name: np.arange(5.0) + at for at, name in enumerate("abc")}
    with pytest.raises(Mistake, match=r"among 3 algorithms .* at least 6 runs of each"):
        compare(five, interims=1)
    with pytest.raises(Mistake, match=r"among 2 algorithms at alpha=0\.01; take at least 8 runs"):
        compare({"a": five["a"], "b": five["b"]}, interims=1, alpha=0.01)
    assert not compare({"a": [1.0], "b": [2.0]}, per_interim=1, interims=6).finished


@pytest.mark.parametrize("runs", [2, 3, 4])
def test_comparison_never_decides_with_fewer_than_five_runs(runs):
    """Whatever the level: a learner that collapses in half of its runs is so often far away."""
    apart = {"a": [9.0] * runs, "b": [1.0] * runs}
    for alpha in (0.05, 0.2, 0.5):
        with pytest.raises(Mistake, match="at least 5"):
            compare(apart, interims=1, per_interim=runs, alpha=alpha)
    made = compare({"a": [9.0] * 4, "b": [1.0] * 4}, interims=3, per_interim=2, alpha=0.9)
    assert verdicts(made) == {("a", "b"): "undecided"}


def test_comparison_decides_five_against_five_separated_runs():
    low, high = np.arange(10.0), np.arange(10.0) + 50.0
    assert verdicts(compare({"a": high[:5], "b": low[:5]}, interims=1)) == {("a", "b"): "larger"}
    later = compare({"a": high[:5], "b": low[:5]}, interims=5)
    assert (verdicts(later), later.boundaries) == ({("a", "b"): "undecided"}, (math.inf,))
    assert later.next_runs == {"a": 5, "b": 5}
    second = compare({"a": high, "b": low}, interims=5)
    assert (second.decisions[0].verdict, second.decisions[0].interim) == ("larger", 2)


def test_comparison_of_unequal_run_counts_uses_a_single_look():
    few, many = np.arange(6.0) + 50.0, np.arange(20.0)
    made = compare({"a": few, "b": many}, interims=1, per_interim=None)
    assert (verdicts(made), made.runs) == ({("a", "b"): "larger"}, {"a": 6, "b": 20})
    with pytest.raises(Mistake, match="give interims=1"):
        compare({"a": few, "b": many}, per_interim=None)


def test_comparison_enumerates_few_permutations_exactly():
    scores = {"a": [3.0, 5.0, 6.0, 8.0, 9.0], "b": [0.0, 1.0, 2.0, 4.0, 7.0]}
    made = [compare(scores, interims=1, key=key) for key in range(3)]
    assert made[0] == made[1] == made[2]  # nothing is drawn, so no key matters
    # of 252 ways 12 may cross at 5 %; the six most uneven and their mirrors do
    every = [
        normal_score(list(chosen), [i for i in range(10) if i not in chosen])
        for chosen in itertools.combinations(range(10), 5)
    ]
    assert made[0].boundaries[0] == pytest.approx(sorted(every)[-13])


def normal_score(first, second):
    """|z|, from scipy's statistic and degrees of freedom, or those of one tie."""
    if max(first) < min(second) or max(second) < min(first):
        squares, freedom = 25**2 / 2, 8.0
    else:
        made = stats.brunnermunzel(first, second)
        squares, share = made.statistic**2, np.subtract.outer(first, second)
        up, down = ((share > 0).mean(axis) for axis in (1, 0))
        parts = up.var(ddof=1) / 5, down.var(ddof=1) / 5
        freedom = sum(parts) ** 2 / sum(part**2 / 4 for part in parts)
    return (8 * freedom + 1) / (8 * freedom + 3) * np.sqrt(freedom * np.log1p(squares / freedom))


def error_rate(laws, trials, interims, *, different=(), runs=5):
    """Share of trials with a wrong "larger" or "smaller" among algorithms of one law."""
    rng, wrong = np.random.default_rng(0), 0
    names = "abcd"[: len(laws)]
    for trial in range(trials):
        scores = {n: law(rng, runs * interims) for n, law in zip(names, laws, strict=True)}
        made = compare(
            scores, alpha=0.05, interims=interims, per_interim=runs, key=trial, draws=600
        )
        wrong += any(
            one.verdict in ("larger", "smaller")
            for one in made.decisions
            if (one.first, one.second) not in different
        )
    return wrong / trials


SLOW = [pytest.param(*cell, marks=pytest.mark.slow) for cell in ((3, 5), (4, 1), (4, 5))]


@pytest.mark.parametrize(
    ("count", "interims"), [(2, 1), (3, 1), pytest.param(2, 5, marks=pytest.mark.slow), *SLOW]
)
def test_comparison_keeps_the_family_wise_error_rate(count, interims):
    trials = {2: 300, 3: 150, 4: 80}[count]
    laws = [lambda rng, size: rng.lognormal(0, 1, size)] * count
    bound = 0.05 + 2 * math.sqrt(0.05 * 0.95 / trials)
    runs = 5 if interims > 1 else 3 + count  # one look at fewer decides nothing
    assert error_rate(laws, trials, interims, runs=runs) <= bound


def test_comparison_keeps_the_error_rate_beside_a_different_algorithm():
    laws = [lambda rng, size: rng.normal(0, 1, size)] * 2
    laws.append(lambda rng, size: rng.normal(6, 1, size))
    trials, different = 150, (("a", "c"), ("b", "c"))
    bound = 0.05 + 2 * math.sqrt(0.05 * 0.95 / trials)
    assert error_rate(laws, trials, 2, different=different) <= bound


def test_comparison_decides_a_large_difference_early():
    rng, used, seen = np.random.default_rng(0), [], 0
    for trial in range(60):
        made = compare(
            {"a": rng.normal(2, 1, 15), "b": rng.normal(0, 1, 15)},
            interims=3,
            key=trial,
            draws=2000,
        )
        seen += verdicts(made)[("a", "b")] == "larger"
        used.append(made.runs["a"])
    assert seen / 60 > 0.9
    assert np.mean(used) < 12  # of 15


def test_comparison_of_ties_and_constants_is_equal():
    made = compare({"a": [5.0] * 10, "b": [5.0] * 10}, interims=2)
    assert verdicts(made) == {("a", "b"): "equal"}
    assert made.decisions[0].difference == 0.0
    same = list(np.random.default_rng(0).normal(size=10))
    assert verdicts(compare({"a": same, "b": same}, interims=2)) == {("a", "b"): "equal"}


def test_comparison_tests_only_the_requested_pairs():
    scores = four(10)
    made = compare(scores, pairs=[("SAC", "PPO"), ("SAC", "DDPG")], interims=2)
    assert verdicts(made) == {("SAC", "PPO"): "larger", ("SAC", "DDPG"): "larger"}
    assert made.runs["TRPO"] == 0


def test_comparison_averages_tasks_run_by_run():
    rng = np.random.default_rng(0)
    better, worse = rng.normal(2, 1, (5, 4)), rng.normal(0, 1, (5, 4))
    whole = compare({"a": better, "b": worse}, interims=1)
    assert (
        whole.boundaries
        == compare({"a": better.mean(1), "b": worse.mean(1)}, interims=1).boundaries
    )
    assert verdicts(whole) == {("a", "b"): "larger"}


def test_comparison_counts_failed_runs_as_declared():
    scores = {"a": [float("nan"), 9.0, 9.5, 9.2, 9.9], "b": [0.1, 0.2, 0.3, 0.4, 0.5]}
    with pytest.raises(Mistake, match="say what they count as"):
        compare(scores, interims=1)
    with pytest.raises(Mistake, match="cannot leave failed runs out"):
        compare(scores, interims=1, failed="exclude")
    made = compare(scores, interims=1, failed=0.0)
    assert made.note == "1 of 5 failed, counted as 0"
    assert made.decisions[0].difference == pytest.approx(7.52 - 0.3)


def test_comparison_refuses_invalid_arguments():
    with pytest.raises(Mistake, match="nothing to compare"):
        compare({"a": [1.0]})
    with pytest.raises(Mistake, match="no scores of 'c'"):
        compare({"a": [1.0], "b": [2.0]}, pairs=[("a", "c")])
    with pytest.raises(Mistake, match="with itself"):
        compare({"a": [1.0], "b": [2.0]}, pairs=[("a", "a")])
    with pytest.raises(Mistake, match="alpha in"):
        compare({"a": [1.0], "b": [2.0]}, alpha=5.0)
    with pytest.raises(Mistake, match="compare at most 8"):
        compare({name: [1.0] for name in "abcdefghij"})


def test_comparison_asks_an_algorithm_without_runs_for_some():
    made = compare({"a": [], "b": []}, per_interim=4)
    assert made.next_runs == {"a": 4, "b": 4}


def test_closed_testing_enumerates_every_grouping():
    pairs = [(0, 1), (0, 2), (1, 2)]
    assert len(joint_hypotheses(3, pairs)) == 4  # 01, 02, 12, 012
    assert len(joint_hypotheses(4, [(i, j) for i in range(4) for j in range(i + 1, 4)])) == 14
    assert sorted(joint_hypotheses(3, [(0, 2)])) == [((0, 2),)]


def test_permutation_boundary_lets_no_more_cross_than_allowed():
    statistic = np.array([5.0, 5.0, 4.0, 3.0, 3.0, 1.0])
    alive = np.array([True, False, True, True, True, True])
    boundary, crossed = find_boundary(statistic, alive, 2)
    assert boundary == 3.0
    assert crossed.tolist() == [True, False, True, False, False, False]
    boundary, crossed = find_boundary(statistic, alive, 3)
    assert crossed.sum() == 2  # of the tied ones none crosses
