"""Write decisions as sentences that claim no more than was decided.

Two labels get the sentence of their pair, with its numbers. Of more labels the numbers of the pairs
stand in a table; one sentence says who tends to score higher than whom.
"""

from __future__ import annotations

from collections.abc import Sequence

from sterling.report.overall_scores import OverallComparison
from sterling.report.pairwise_contest import (
    MEANS_METHOD,
    EnvironmentComparison,
    LabelPair,
    PairComparison,
    reflect_estimate,
)
from sterling.report.text_tables import format_percent, join_words, pluralise
from sterling.statistics import Estimate
from sterling.statistics.comparisons.comparison_result import (
    describe_disagreement,
    directions_disagree,
    format_probability,
    includes_half,
    unseen_means_text,
)

MANY_SEEDS = 200  # a difference that needs more seeds is of no practical interest


def pair_sentence(pair: PairComparison, environment: str) -> str:
    """Return the sentence about one pair on one environment."""
    if pair.verdict == "undecided":
        return f"{pair.first} and {pair.second} on {environment}: not compared; {pair.why}."
    assert pair.difference is not None
    assert pair.better is not None
    if pair.about == "mean":
        return _means_sentence(pair, environment)
    if pair.verdict == "equal":
        return (
            f"{pair.first} and {pair.second} are not distinguished on {environment}: a run of "
            f"{pair.first} scores {pair.direction} in {format_probability(pair.better)} of pairs, "
            f"{_seeds_text(pair)}. {_more_seeds_text(pair)}"
        )
    winner, loser, difference, better = _winner_first(pair)
    return (
        f"{winner} tends to score {pair.direction} than {loser} on {environment}: in "
        f"{format_probability(better)} of pairs of runs, {_seeds_text(pair)}; "
        f"{_difference_text(difference)} over the runs seen."
    )


def _means_sentence(pair: PairComparison, environment: str) -> str:
    assert pair.difference is not None
    if pair.verdict == "equal":
        return (
            f"The means of {pair.first} and {pair.second} are not distinguished on {environment}: "
            f"{_difference_text(pair.difference)} within the bounds of the scores, "
            f"{_seeds_text(pair)}."
        )
    winner, loser, difference, _ = _winner_first(pair)
    return (
        f"{winner} has a {pair.direction} mean than {loser} on {environment}: "
        f"{_difference_text(difference)} within the bounds of the scores, {_seeds_text(pair)}."
    )


def pair_sentences(comparisons: list[EnvironmentComparison]) -> list[str]:
    """Return the sentences about every pair of every environment.

    Pairs that lack a finished run are left out. Where tendency and means point in different
    directions, an extra sentence says so.
    """
    sentences = []
    for one in comparisons:
        for pair in one.pairs:
            if pair.difference is None or pair.better is None:
                continue
            sentences.append(pair_sentence(pair, one.environment))
            if directions_disagree(pair.better, _sign(pair) * pair.difference.value):
                words = describe_disagreement(
                    pair.first, pair.second, pair.better, pair.difference.value
                )
                words = words.replace("higher", pair.direction)
                sentences.append(f"On {one.environment} {words}.")
    return sentences


def overall_sentence(one: OverallComparison) -> str:
    """Return the sentence about two labels over all the environments that they share."""
    over = f"Over {pluralise(len(one.environments), 'environment')}"
    if includes_half(one.made):
        return (
            f"{over} {one.first} and {one.second} are not distinguished: a run of {one.first} "
            f"scores {one.direction} in {format_probability(one.made)} of pairs."
        )
    return (
        f"{over} a run of {one.first} tends to score {one.direction} than one of {one.second}: in "
        f"{format_probability(one.made)} of pairs."
    )


def method_paragraph(comparisons: list[EnvironmentComparison], alpha: float) -> str:
    """Return how it was decided, which error is allowed, and what so few seeds cannot exclude."""
    methods = list(dict.fromkeys(one.how for one in comparisons if one.how != "none"))
    fewest = min(
        (min(pair.seeds) for one in comparisons for pair in one.pairs if min(pair.seeds)), default=0
    )
    if not methods or not fewest:
        return "Nothing was decided."
    share = format_percent(alpha)
    several = " This holds for each environment separately." if len(comparisons) > 1 else ""
    if methods == [MEANS_METHOD]:
        error = (
            f"on one environment the probability of any wrong verdict about means is at most "
            f"{share} for every distribution within the bounds.{several} Tendencies are shown as "
            "well and decide nothing here."
        )
    else:
        unseen = unseen_means_text(fewest)
        error = (
            f"on one environment the probability of any wrong 'tends to score higher' is about "
            f"{share}, measured for many shapes of scores (docs/statistics.md).{several} "
            "The interval of a share of pairs excludes 0.50 exactly where the pair is decided. "
            f"{unseen[0].upper()}{unseen[1:]}; {_bounds_hint()}."
        )
    return (
        f"Decided by {' and by '.join(methods)}; {error} Not distinguished does not mean equal. To "
        "add seeds until it is decided, with controlled error: sterling compare --until-decided."
    )


def _bounds_hint() -> str:
    return "where scores have bounds, --about mean decides between means"


def _winner_first(pair: PairComparison) -> tuple[str, str, Estimate, Estimate]:
    """Return winner, loser, difference and probability, as seen from the winner."""
    assert pair.difference is not None
    assert pair.better is not None
    if pair.verdict == "larger":
        return pair.first, pair.second, pair.difference, pair.better
    return (
        pair.second,
        pair.first,
        reflect_estimate(pair.difference, 0.0),
        reflect_estimate(pair.better, 1.0),
    )


def _difference_text(made: Estimate) -> str:
    return f"difference of means {made}"


def _seeds_text(pair: PairComparison) -> str:
    first, second = pair.seeds
    return (
        f"with {pluralise(first, 'seed')} each" if first == second else f"with {first} and {second}"
    )


def _more_seeds_text(pair: PairComparison) -> str:
    """Return the sentence about how many seeds would detect the tendency."""
    if pair.need is None:
        return "If the true tendency is as weak as this, no number of seeds would distinguish them."
    least = min(pair.seeds)
    if pair.need > MANY_SEEDS:
        many = round(pair.need, 2 - len(str(pair.need)))
        return f"Detecting a tendency as weak as this would take about {many:,} seeds each."
    extra = pair.need - least
    if extra <= 0:
        return "So many seeds would detect a true tendency as strong as this in 4 of 5 cases."
    return (
        f"{pair.need} seeds each would detect a true tendency as strong as this in 4 of 5 cases: "
        f"run {extra} more."
    )


def environment_conclusions(comparisons: Sequence[EnvironmentComparison]) -> list[str]:
    """Return the sentences about each environment: one, and another where a tendency and the means
    point in different directions."""
    sentences = []
    for one in comparisons:
        if len(one.pairs) < 2:
            sentences += pair_sentences([one])
        else:
            sentences += [_conclusion(one), *_disagreements(one)]
    return sentences


def overall_conclusions(over: Sequence[OverallComparison]) -> list[str]:
    """Return the sentence about all environments that labels share; none without such labels."""
    if len(over) < 2:
        return [overall_sentence(one) for one in over]
    counts = {len(one.environments) for one in over}
    where = "Over the environments that they share"
    if len(counts) == 1:
        where = f"Over {pluralise(counts.pop(), 'environment')}"
    equal = [(one.first, one.second) for one in over if includes_half(one.made)]
    decided = [(one.first, one.second) for one in over if not includes_half(one.made)]
    does = f"tends to score {over[0].direction}"
    return [f"{where} {relations_text(decided, equal, does)}."]


def _conclusion(one: EnvironmentComparison) -> str:
    """Return the sentence about an environment with several pairs."""
    compared = [pair for pair in one.pairs if pair.verdict != "undecided"]
    reasons = list(dict.fromkeys(pair.why for pair in one.pairs if pair.verdict == "undecided"))
    left = len(one.pairs) - len(compared)
    why = f"{pluralise(left, 'pair')} {'is' if left == 1 else 'are'} not compared: "
    why += "; ".join(reasons)
    if not compared:
        return f"On {one.environment} {why}."
    does = f"tends to score {compared[0].direction}"
    if compared[0].about == "mean":
        does = f"has a {compared[0].direction} mean"
    decided = [_winner_first(pair)[:2] for pair in compared if pair.verdict != "equal"]
    equal = [(pair.first, pair.second) for pair in compared if pair.verdict == "equal"]
    text = f"On {one.environment} {relations_text(decided, equal, does)}"
    return f"{text}; {why}." if reasons else f"{text}."


def relations_text(decided: Sequence[LabelPair], equal: Sequence[LabelPair], does: str) -> str:
    """Return who ``does`` better than whom, and which pairs are not distinguished; the winner of a
    ``decided`` pair stands first."""
    labels = list(dict.fromkeys(label for pair in (*decided, *equal) for label in pair))
    if not decided and len(equal) == 1:
        return f"{join_words(equal[0])} are not distinguished"
    if not decided:
        return f"none of {join_words(labels)} is distinguished from another"
    beaten: dict[str, list[str]] = {}
    for winner, loser in decided:
        beaten.setdefault(winner, []).append(loser)
    ranked = sorted(beaten, key=lambda label: -len(beaten[label]))
    clauses = []
    for at, winner in enumerate(ranked):
        losers = beaten[winner]
        others = "all others" if len(losers) == len(labels) - 1 > 1 else join_words(losers)
        clauses.append(f"{winner} {f'{does} ' if not at else ''}than {others}")
    text = join_words(clauses) if len(clauses) > 1 else clauses[0]
    if len(equal) == 1:
        return f"{text}; {join_words(equal[0])} are not distinguished"
    return f"{text}; the other {len(equal)} pairs are not distinguished" if equal else text


def _disagreements(one: EnvironmentComparison) -> list[str]:
    """Return the sentence about the pairs whose tendency and means point in different directions;
    none if there is no such pair."""
    found = [
        f"{pair.first} and {pair.second}"
        for pair in one.pairs
        if pair.better is not None
        and pair.difference is not None
        and directions_disagree(pair.better, _sign(pair) * pair.difference.value)
    ]
    if not found:
        return []
    return [
        f"On {one.environment} tendency and means point in different directions for "
        f"{'; '.join(found)} (see the table)."
    ]


def _sign(pair: PairComparison) -> float:
    return -1.0 if pair.direction == "lower" else 1.0
