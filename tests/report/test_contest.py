"""Who is better: decided where the seeds permit, and said in words that claim no more."""

import json

import numpy as np
import pytest
from scipy import stats

from sterling.report.overall_scores import mean_training_returns
from sterling.report.pairwise_contest import (
    MEANS_METHOD,
    TENDENCY_METHOD,
    compare_on_environments,
    welch_interval,
)
from sterling.report.runs.read_runs import read_results
from sterling.report.runs.run_groups import group_results
from sterling.report.verdict_words import method_paragraph, pair_sentence, pair_sentences
from sterling.statistics.comparisons.seed_power import runs_to_show_tendency
from sterling.types import Mistake


def test_clear_difference_of_two_algorithms_is_decided(held, spread):
    one = held(sac=spread(200.0), ppo=spread(100.0))
    (pair,) = one.pairs
    assert (pair.first, pair.second, pair.verdict, one.how) == (
        "sac",
        "ppo",
        "larger",
        TENDENCY_METHOD,
    )
    assert pair.difference.value == pytest.approx(100.0)
    words = pair_sentence(pair, "Hopper-v5")
    assert words.startswith(
        "sac tends to score higher than ppo on Hopper-v5: in 1.00 [>0.50, 1.00]"
    )
    assert "difference of means 100.0" in words
    assert "over the runs seen" in words
    assert pair.better.value == 1.0


def test_pair_lists_the_better_algorithm_first(held, spread):
    (pair,) = held(ppo=spread(100.0), sac=spread(200.0)).pairs
    assert (pair.first, pair.verdict) == ("sac", "larger")


def test_pair_without_difference_is_called_not_distinguished(held, spread):
    (pair,) = held(sac=spread(101.0), ppo=spread(100.0)).pairs
    assert pair.verdict == "equal"
    words = pair_sentence(pair, "Hopper-v5")
    assert "are not distinguished" in words
    assert "tends" not in words
    assert f"{pair.need}" in words.replace(",", "") or pair.need > 200


def test_pair_states_the_number_of_seeds_needed(held):
    (pair,) = held(sac=[1.0, 2.0, 3.0, 4.0, 5.0], ppo=[0.0, 1.0, 2.0, 3.0, 4.0]).pairs
    assert (pair.verdict, pair.better.value) == ("equal", 0.68)
    assert pair.need == 41  # Noether: 7.85 / 6 / 0.18^2
    assert (
        "41 seeds each would detect a true tendency as strong as this in 4 of 5 cases: run 36 more"
        in pair_sentence(pair, "x")
    )


def test_seeds_needed_depend_on_alpha(held):
    scores = {"sac": [1.0, 2, 3, 4, 5, 6, 7, 8], "ppo": [0.5, 1.5, 2.5, 3.5, 4.5, 5, 6, 7]}
    (pair,) = held(alpha=0.01, **scores).pairs
    assert pair.need == runs_to_show_tendency(pair.better.value, alpha=0.01)
    assert pair.need > runs_to_show_tendency(pair.better.value)


@pytest.mark.parametrize("seeds", [(2, 2), (3, 3), (4, 4), (4, 20)])
def test_pair_with_too_few_seeds_is_undecided(held, seeds):
    one = held(sac=np.arange(seeds[0]) + 50.0, ppo=np.arange(seeds[1]) * 1.0)
    (pair,) = one.pairs
    assert (one.how, pair.verdict) == ("none", "undecided")
    assert (
        f"sac has {seeds[0]} seeds, and between 2 labels nothing is decided with fewer than 5"
        in (pair.why)
    )
    assert pair.better.low <= 0.5 <= pair.better.high


def test_three_labels_with_six_seeds_each_are_decided(held):
    far = {name: np.arange(6.0) + 50 * at for at, name in enumerate(("a", "b", "c"))}
    assert {pair.verdict for pair in held(**far).pairs} == {"larger"}


def test_label_with_too_few_seeds_does_not_block_other_pairs(held):
    far = {"x": np.arange(5.0), "y": np.arange(7.0) + 50, "z": np.arange(9.0) + 90}
    said = {(pair.first, pair.second): pair for pair in held(**far).pairs}
    assert said["z", "y"].verdict == "larger"
    assert said["z", "x"].verdict == said["y", "x"].verdict == "undecided"
    assert "between 3 labels nothing is decided with fewer than 6 at 5%" in said["z", "x"].why


def test_pair_with_unequal_seed_counts_is_decided(held):
    one = held(sac=np.arange(5.0) + 50, ppo=np.arange(9.0))
    assert (one.how, one.pairs[0].verdict, one.pairs[0].seeds) == (
        TENDENCY_METHOD,
        "larger",
        (5, 9),
    )


def test_better_probability_interval_excludes_half_iff_pair_is_decided(held):
    rng = np.random.default_rng(0)
    for at in range(12):
        scores = {
            f"{name}{at}": rng.normal(by, 1.0, 7) for name, by in zip("abc", (0, 1, 3), strict=True)
        }
        for pair in held(**scores).pairs:
            decided = pair.verdict in ("larger", "smaller")
            assert decided != (pair.better.low <= 0.5 <= pair.better.high)


COLLAPSES = {"steady": np.linspace(790, 810, 20), "bold": [1000.0] * 14 + [300.0] * 6}


def test_pair_sentence_mentions_tendency_and_means_that_disagree(held):
    one = held(**COLLAPSES)
    (pair,) = one.pairs
    assert (pair.first, pair.better.value) == ("steady", 0.3)  # the higher mean comes first
    told = pair_sentences([one])
    assert told[1] == (
        "On Hopper-v5 tendency and means point in different directions: a run of bold scores "
        "higher than one of steady in 0.70 of pairs, but the mean of steady is higher, by 10."
    )
    assert len(pair_sentences([held(sac=[1.0, 2, 3, 4, 5], ppo=[51.0, 52, 53, 54, 55])])) == 1


def test_method_paragraph_states_the_collapse_rate_few_seeds_cannot_exclude(held, spread):
    told = method_paragraph([held(sac=spread(200.0), ppo=spread(100.0))], 0.05)
    assert "5 seeds cannot exclude that up to 45 % of runs fail" in told


def test_mean_comparison_needs_declared_bounds(held, spread, run):
    scores = {"sac": spread(450.0, 20), "ppo": spread(100.0, 20)}
    with pytest.raises(Mistake, match="add --within LOW,HIGH"):
        held(about="mean", **scores)
    folders = [run(f"one/{x}", x, y, within=(0.0, None)) for x, y in scores.items()]
    half = group_results(read_results(folders)[0])[0]
    with pytest.raises(Mistake, match="do not declare both"):
        compare_on_environments(half, about="mean")
    folders = [run(f"bounded/{x}", x, y, within=(0.0, 500.0)) for x, y in scores.items()]
    (one,) = compare_on_environments(group_results(read_results(folders)[0])[0], about="mean")
    (pair,) = one.pairs
    assert (one.how, pair.verdict, pair.about) == (MEANS_METHOD, "larger", "mean")
    assert 0.0 < pair.difference.low < 350.0 < pair.difference.high
    assert pair_sentences([one])[0].startswith(
        "sac has a higher mean than ppo on Hopper-v5: difference"
    )
    assert "at most 5% for every distribution within the bounds" in method_paragraph([one], 0.05)


@pytest.mark.parametrize(("alpha", "said"), [(0.05, "5%"), (0.001, "0.1%"), (0.025, "2.5%")])
def test_method_paragraph_states_the_error_rate(held, alpha, said):
    one = held(sac=np.arange(5.0), ppo=np.arange(5.0) + 9)
    assert f"is about {said}, measured for many shapes" in method_paragraph([one], alpha)


def test_pair_of_identical_scores_states_no_seed_count(held):
    (pair,) = held(sac=[5.0] * 5, ppo=[5.0] * 5).pairs
    assert (pair.verdict, pair.need) == ("equal", None)
    assert "no number of seeds" in pair_sentence(pair, "x")


def test_pair_with_one_seed_is_not_compared(held, spread):
    (pair,) = held(sac=[500.0], ppo=spread(1.0)).pairs
    assert (pair.verdict, pair.difference.low) == ("undecided", None)
    assert (
        pair_sentence(pair, "x")
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


def test_failed_seeds_count_as_the_given_score(held, spread):
    one = held(sac=[*spread(200.0, 4), None], ppo=spread(100.0), failed=0.0)
    assert one.standings[0].made.made.value == pytest.approx(160.0)
    assert one.pairs[0].verdict == "equal"


def test_an_unfinished_run_is_shown_and_not_compared(run, spread):
    folders = [run("a", "sac", spread(1.0), finished=False), run("b", "ppo", spread(2.0))]
    (one,) = compare_on_environments(group_results(read_results(folders)[0])[0])
    assert [at.made.shown is None for at in one.standings] == [True, False]
    assert one.pairs[0].why == "sac has no finished run"
    assert pair_sentences([one]) == []
    assert method_paragraph([one], 0.05) == "Nothing was decided."


def test_another_algorithm_changes_no_interval(held, spread, run):
    alone = held(sac=spread(200.0), ppo=spread(100.0))
    folders = [run(f"x{name}", name, spread(mean)) for name, mean in
               [("sac", 200.0), ("ppo", 100.0), ("td3", 150.0)]]  # fmt: skip
    (more,) = compare_on_environments(group_results(read_results(folders)[0])[0])
    assert [at.made for at in alone.standings] == [at.made for at in more.standings[:2]]
    assert alone.pairs[0].difference in [pair.difference for pair in more.pairs]


def test_score_intervals_end_at_the_declared_bounds(run):
    scores = (0.88, 0.93, 0.97)
    bounded, free = run("grpo", "grpo", scores, within=(0.0, 1.0)), run("rloo", "rloo", scores)
    groups = group_results(read_results([bounded, free])[0])[0]
    cut, whole = (one.made.made for one in compare_on_environments(groups)[0].standings)
    assert whole.high > 1.0
    assert (cut.low, cut.high) == (whole.low, 1.0)
    area = mean_training_returns(groups)["Hopper-v5"][1]
    assert area["grpo"] == area["rloo"]  # far from both ends
    low = group_results(read_results([run("sft", "sft", (0.1, 0.2, 0.6), within=(0.0, 1.0))])[0])[0]
    assert mean_training_returns(low)["Hopper-v5"][1]["sft"].low == 0.0


def test_mean_training_return_covers_the_same_steps_for_all_runs(run):
    def rising(name, total, rows):
        folder = run(name, name, [0.0, 0.0], steps=total)
        log = [{"step": k * total // rows, "data/return": [k * total / rows / 1000] * 2}
               for k in range(1, rows + 1)]  # fmt: skip
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in log))
        return folder

    runs = [rising("long", 1_000_000, 1000), rising("short", 30_000, 100)]
    end, made = mean_training_returns(group_results(read_results(runs)[0])[0])["Hopper-v5"]
    assert end == 30_000
    # the mean of t / 1000 over 0 ... 30,000, but for a level piece before the first row
    assert made["short"].value == pytest.approx(15.0, abs=0.01)
    assert made["long"].value == pytest.approx(15.0, abs=0.02)


def test_welch_interval_equals_scipy():
    first, second = np.array([1.0, 2.0, 4.0]), np.array([7.0, 9.0, 8.0, 30.0])
    made = welch_interval(first, second)
    theirs = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    assert (made.low, made.high) == pytest.approx((theirs.low, theirs.high))


def test_failed_worst_score_is_the_runs_declared_bound(run, spread):
    scores = [*spread(200.0, 4), None]
    known = run("a", "sac", scores, within=(0.0, 500.0)), run("b", "ppo", spread(100.0))
    groups = group_results(read_results([known[0]])[0])[0]
    (one,) = compare_on_environments(groups)
    assert one.standings[0].made.at_worst.value == pytest.approx(160.0)  # beside, unasked
    (one,) = compare_on_environments(groups, failed="worst")
    assert one.standings[0].made.made.value == pytest.approx(160.0)
    (one,) = compare_on_environments(groups, failed="exclude")
    assert one.standings[0].made.made.method == "t; 1 of 5 failed, excluded"
    unknown = group_results(read_results([run("c", "td3", scores)])[0])[0]
    with pytest.raises(Mistake, match="worst possible score on Hopper-v5 is not known"):
        compare_on_environments(unknown, failed="worst")
