"""Several learners on an environment get one sentence; their pairs stand in the table."""

import numpy as np

from sterling.report.overall_scores import OverallComparison
from sterling.report.verdict_words import (
    environment_conclusions,
    overall_conclusions,
    pair_sentences,
)
from sterling.statistics import Estimate, compare
from sterling.training.until_decided.decided_comparison import decision_lines


def test_four_learners_get_one_sentence(held):
    """One that beats all others, two alike, and one that all others beat."""
    scores = {"sac": 300.0, "td3": 200.0, "ddpg": 199.5, "ppo": 100.0}
    one = held(**{name: np.arange(12.0) + middle for name, middle in scores.items()})
    assert [pair.verdict for pair in one.pairs].count("larger") == 5
    assert environment_conclusions([one]) == [
        "On Hopper-v5 sac tends to score higher than all others, td3 than ppo and ddpg than ppo; "
        "td3 and ddpg are not distinguished."
    ]


def test_four_learners_trained_until_decided_get_one_sentence_and_a_table():
    scores = {"sac": 300.0, "td3": 200.0, "ddpg": 199.5, "ppo": 100.0}
    runs = {name: np.arange(12.0) + middle for name, middle in scores.items()}
    made = compare(runs, interims=1, per_interim=None)
    sentence, _, table, _ = decision_lines(made.decisions, 3)
    assert sentence == (
        "sac tends to score higher than all others, td3 than ppo and ddpg than ppo; td3 and ddpg "
        "are not distinguished."
    )
    assert len(table.splitlines()) == 1 + 6
    pair = decision_lines(made.decisions[:1], 3)
    assert pair == [f"{made.decisions[0]} after 1 of 3 looks"]


def test_four_equal_learners_get_one_sentence(held):
    one = held(sac=np.arange(12.0), td3=np.arange(12.0), ddpg=np.arange(12.0), ppo=np.arange(12.0))
    (told,) = environment_conclusions([one])
    assert told.startswith("On Hopper-v5 none of ")
    assert told.endswith(" is distinguished from another.")


def test_sentence_about_several_learners_names_those_that_are_not_compared(held):
    one = held(sac=np.arange(12.0) + 300, td3=np.arange(12.0), ppo=[100.0])
    assert environment_conclusions([one]) == [
        "On Hopper-v5 sac tends to score higher than td3; 2 pairs are not compared: ppo has one "
        "seed, which shows no spread."
    ]


def test_two_learners_get_the_sentence_of_their_pair(held, spread):
    one = held(sac=spread(200.0), ppo=spread(100.0))
    assert environment_conclusions([one]) == pair_sentences([one])


def test_pairs_whose_means_disagree_with_the_tendency_share_a_sentence(held):
    bold = [1000.0] * 14 + [300.0] * 6
    told = environment_conclusions(
        [held(steady=np.linspace(790, 810, 20), bold=bold, low=np.arange(20.0))]
    )
    assert told[1:] == [
        "On Hopper-v5 tendency and means point in different directions for steady and bold (see "
        "the table)."
    ]


def test_learners_over_several_environments_get_one_sentence():
    def over(first, second, value):
        made = Estimate(value, value - 0.1, value + 0.1, 5, "", 0.95)
        return OverallComparison(first, second, ["a", "b"], made)

    pairs = [over("x", "y", 0.8), over("x", "z", 0.9), over("y", "z", 0.55)]
    assert overall_conclusions(pairs) == [
        "Over 2 environments x tends to score higher than all others; y and z are not "
        "distinguished."
    ]
