"""Who is better: decided where the seeds permit, and said in words that claim no more."""

import itertools
import json

import numpy as np
import pytest
from scipy import stats

from sterling.report.contest import PERMUTATION, WELCH, contests, welch
from sterling.report.groups import gather
from sterling.report.overall import areas
from sterling.report.runs import read
from sterling.report.words import method, sentence, sentences
from sterling.statistics import need
from sterling.types import Mistake


@pytest.fixture
def held(run):
    """``held(sac=[...], ppo=[...], failed=...)``: the only contest between these scores."""

    def hold(failed=None, alpha=0.05, **scores):
        folders = [run(name, name, values) for name, values in scores.items()]
        (one,) = contests(gather(read(folders)[0])[0], alpha=alpha, failed=failed)
        return one

    return hold


def test_a_clear_difference_is_decided(held, spread):
    one = held(sac=spread(200.0), ppo=spread(100.0))
    (pair,) = one.pairs
    assert (pair.first, pair.second, pair.verdict, one.how) == ("sac", "ppo", "larger", PERMUTATION)
    assert pair.difference.value == pytest.approx(100.0)
    assert sentence(pair, "Hopper-v5").startswith("sac beats ppo on Hopper-v5: difference of means")
    assert pair.better.value == 1.0


def test_the_better_comes_first_whatever_the_order(held, spread):
    (pair,) = held(ppo=spread(100.0), sac=spread(200.0)).pairs
    assert (pair.first, pair.verdict) == ("sac", "larger")


def test_no_difference_is_not_called_equality(held, spread):
    (pair,) = held(sac=spread(101.0), ppo=spread(100.0)).pairs
    assert pair.verdict == "equal"
    words = sentence(pair, "Hopper-v5")
    assert "are not distinguished" in words
    assert "beats" not in words
    assert f"{pair.need}" in words.replace(",", "") or pair.need > 200


def test_the_seeds_that_are_missing_are_counted(held):
    (pair,) = held(sac=[1.0, 2.0, 3.0, 4.0, 5.0], ppo=[0.0, 1.0, 2.0, 3.0, 4.0]).pairs
    assert (pair.verdict, pair.need) == ("equal", 41)
    assert "41 seeds each would show it in 4 of 5 cases: run 36 more" in sentence(pair, "x")


def test_the_seeds_that_are_missing_depend_on_alpha(held):
    scores = {"sac": [1.0, 2.0, 3.0, 4.0, 5.0], "ppo": [0.0, 1.0, 2.0, 3.0, 4.0]}
    assert held(alpha=0.001, **scores).pairs[0].need == need(1 / np.sqrt(2.5), alpha=0.001) == 89


@pytest.mark.parametrize(
    ("seeds", "alpha", "verdict", "needed"),
    [
        ((2, 2), 0.05, "equal", 4),  # 2 of 6 ways to deal them out differ by as much
        ((2, 2), 0.34, "larger", None),
        ((3, 3), 0.05, "equal", 4),
        ((3, 3), 0.001, "equal", 7),
        ((5, 2), 0.05, "larger", None),  # 1 of 21
        ((5, 2), 0.04, "equal", 4),
    ],
)
def test_runs_without_any_spread_are_exchanged(held, seeds, alpha, verdict, needed):
    one = held(alpha=alpha, sac=[1.0] * seeds[0], ppo=[0.0] * seeds[1])
    (pair,) = one.pairs
    assert (one.how, pair.verdict, pair.need) == (WELCH, verdict, needed)
    assert "no number of seeds" not in sentence(pair, "x")


def test_equal_successes_rarely_beat_each_other(run):
    wrong = 0
    for at, found in enumerate(itertools.product([0.0, 1.0], repeat=4)):
        folders = [run(f"{at}/{name}", name, found[i : i + 2]) for name, i in (("a", 0), ("b", 2))]
        (one,) = contests(gather(read(folders)[0])[0])
        wrong += one.pairs[0].verdict != "equal"
    assert wrong / 16 <= 0.05


@pytest.mark.parametrize(("alpha", "said"), [(0.05, "5%"), (0.001, "0.1%"), (0.025, "2.5%")])
def test_what_error_is_allowed_is_said_in_full(held, alpha, said):
    one = held(sac=[1.0, 2.0], ppo=[3.0, 4.0])
    assert f"is at most {said}." in method([one], alpha)


def test_identical_scores_need_no_seeds_at_all(held):
    (pair,) = held(sac=[5.0] * 5, ppo=[5.0] * 5).pairs
    assert (pair.verdict, pair.need) == ("equal", None)
    assert "no number of seeds" in sentence(pair, "x")


def test_few_or_unequal_seeds_are_left_to_welch(held):
    one = held(sac=[10.0, 11.0, 12.0], ppo=[1.0, 2.0, 3.0, 2.0, 1.0])
    assert (one.how, one.pairs[0].verdict) == (WELCH, "larger")


def test_holm_holds_back_what_one_test_alone_would_decide(held):
    scores = {"sac": [10.0, 11.0, 12.0], "ppo": [7.7, 8.7, 9.7]}
    assert held(**scores).pairs[0].verdict == "larger"
    assert stats.ttest_ind(*scores.values(), equal_var=False).pvalue > 0.05 / 3


def test_one_seed_decides_nothing(held, spread):
    (pair,) = held(sac=[500.0], ppo=spread(1.0)).pairs
    assert (pair.verdict, pair.difference.low) == ("undecided", None)
    assert (
        sentence(pair, "x")
        == "sac and ppo on x: not compared; sac has one seed, which shows no spread."
    )


def test_failed_seeds_are_not_dropped_silently(held, spread):
    scores = {"sac": [*spread(200.0, 4), None], "ppo": spread(100.0)}
    one = held(**scores)
    assert one.pairs[0].verdict == "undecided"
    assert "sac has 1 failed seed" in one.pairs[0].why
    made = one.standings[0].made
    assert made.made is None  # no single number
    assert str(made).startswith("1 of 5 seeds failed; mean of the other 4: 200")


def test_failed_seeds_count_as_said(held, spread):
    one = held(sac=[*spread(200.0, 4), None], ppo=spread(100.0), failed=0.0)
    assert one.standings[0].made.made.value == pytest.approx(160.0)
    assert one.pairs[0].verdict == "equal"


def test_an_unfinished_run_is_shown_and_not_compared(run, spread):
    folders = [run("a", "sac", spread(1.0), finished=False), run("b", "ppo", spread(2.0))]
    (one,) = contests(gather(read(folders)[0])[0])
    assert [at.made.shown is None for at in one.standings] == [True, False]
    assert one.pairs[0].why == "sac has no finished run"
    assert sentences([one]) == []
    assert method([one], 0.05) == "Nothing was decided."


def test_another_algorithm_changes_no_interval(held, spread, run):
    alone = held(sac=spread(200.0), ppo=spread(100.0))
    folders = [run(f"x{name}", name, spread(mean)) for name, mean in
               [("sac", 200.0), ("ppo", 100.0), ("td3", 150.0)]]  # fmt: skip
    (more,) = contests(gather(read(folders)[0])[0])
    assert [at.made for at in alone.standings] == [at.made for at in more.standings[:2]]
    assert alone.pairs[0].difference in [pair.difference for pair in more.pairs]


def test_intervals_end_at_what_scores_can_be(run):
    scores = (0.88, 0.93, 0.97)
    bounded, free = run("grpo", "grpo", scores, within=(0.0, 1.0)), run("rloo", "rloo", scores)
    groups = gather(read([bounded, free])[0])[0]
    cut, whole = (one.made.made for one in contests(groups)[0].standings)
    assert whole.high > 1.0
    assert (cut.low, cut.high) == (whole.low, 1.0)
    area = areas(groups)["Hopper-v5"][1]
    assert area["grpo"] == area["rloo"]  # far from both ends
    low = gather(read([run("sft", "sft", (0.1, 0.2, 0.6), within=(0.0, 1.0))])[0])[0]
    assert areas(low)["Hopper-v5"][1]["sft"].low == 0.0


def test_areas_are_over_the_same_steps_however_far_a_log_goes(run):
    def rising(name, total, rows):
        folder = run(name, name, [0.0, 0.0], steps=total)
        log = [{"step": k * total // rows, "data/return": [k * total / rows / 1000] * 2}
               for k in range(1, rows + 1)]  # fmt: skip
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in log))
        return folder

    runs = [rising("long", 1_000_000, 1000), rising("short", 30_000, 100)]
    end, made = areas(gather(read(runs)[0])[0])["Hopper-v5"]
    assert end == 30_000
    # the mean of t / 1000 over 0 ... 30,000, but for a level piece before the first row
    assert made["short"].value == pytest.approx(15.0, abs=0.01)
    assert made["long"].value == pytest.approx(15.0, abs=0.02)


def test_welch_is_scipys():
    first, second = np.array([1.0, 2.0, 4.0]), np.array([7.0, 9.0, 8.0, 30.0])
    made = welch(first, second)
    theirs = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    assert (made.low, made.high) == pytest.approx((theirs.low, theirs.high))


def test_the_worst_is_what_the_runs_declare(run, spread):
    scores = [*spread(200.0, 4), None]
    known = run("a", "sac", scores, within=(0.0, 500.0)), run("b", "ppo", spread(100.0))
    groups = gather(read([known[0]])[0])[0]
    (one,) = contests(groups)
    assert one.standings[0].made.at_worst.value == pytest.approx(160.0)  # beside, unasked
    (one,) = contests(groups, failed="worst")
    assert one.standings[0].made.made.value == pytest.approx(160.0)
    (one,) = contests(groups, failed="exclude")
    assert one.standings[0].made.made.method == "t; 1 of 5 failed, excluded"
    unknown = gather(read([run("c", "td3", scores)])[0])[0]
    with pytest.raises(Mistake, match="worst possible score on Hopper-v5 is not known"):
        contests(unknown, failed="worst")
