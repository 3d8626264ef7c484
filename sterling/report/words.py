"""Decisions in words: what may be said, and no more."""

from __future__ import annotations

from sterling.report.contest import MEANS, Contest, Pair, turned
from sterling.report.overall import Better
from sterling.report.text import count, percent
from sterling.statistics import Estimate
from sterling.statistics.comparison import as_far_as_seen, chance, directions, holds_half, opposed

MANY = 200  # seeds; needing more, a difference is of no practical interest


def sentence(pair: Pair, environment: str) -> str:
    """One pair on one environment."""
    if pair.verdict == "undecided":
        return f"{pair.first} and {pair.second} on {environment}: not compared; {pair.why}."
    assert pair.difference is not None
    assert pair.better is not None
    if pair.about == "mean":
        return _of_means(pair, environment)
    if pair.verdict == "equal":
        return (
            f"{pair.first} and {pair.second} are not distinguished on {environment}: a run of "
            f"{pair.first} scores {pair.direction} in {chance(pair.better)} of pairs, "
            f"{_seeds(pair)}. {_more(pair)}"
        )
    winner, loser, by, better = _sorted(pair)
    return (
        f"{winner} tends to score {pair.direction} than {loser} on {environment}: in "
        f"{chance(better)} of pairs of runs, {_seeds(pair)}; {_by(by)} as far as was seen."
    )


def _of_means(pair: Pair, environment: str) -> str:
    assert pair.difference is not None
    if pair.verdict == "equal":
        return (
            f"The means of {pair.first} and {pair.second} are not distinguished on {environment}: "
            f"{_by(pair.difference)} within the bounds of the scores, {_seeds(pair)}."
        )
    winner, loser, by, _ = _sorted(pair)
    return (
        f"{winner} has a {pair.direction} mean than {loser} on {environment}: {_by(by)} "
        f"within the bounds of the scores, {_seeds(pair)}."
    )


def sentences(contests: list[Contest]) -> list[str]:
    """Every pair of every contest; those without a finished run have nothing to be said. Where
    tendency and means point in different directions, a sentence of its own says so."""
    told = []
    for one in contests:
        for pair in one.pairs:
            if pair.difference is None or pair.better is None:
                continue
            told.append(sentence(pair, one.environment))
            sign = -1.0 if pair.direction == "lower" else 1.0
            if opposed(pair.better, sign * pair.difference.value):
                words = directions(pair.first, pair.second, pair.better, pair.difference.value)
                words = words.replace("higher", pair.direction)
                told.append(f"On {one.environment} {words}.")
    return told


def together(one: Better) -> str:
    """Two labels over all the environments that they share; the interval decides the words."""
    over = f"Over {count(len(one.environments), 'environment')}"
    if holds_half(one.made):
        return (
            f"{over} {one.first} and {one.second} are not told apart: a run of {one.first} scores "
            f"{one.direction} in {chance(one.made)} of pairs."
        )
    return (
        f"{over} a run of {one.first} tends to score {one.direction} than one of {one.second}: in "
        f"{chance(one.made)} of pairs."
    )


def method(contests: list[Contest], alpha: float) -> str:
    """How it was decided, what error is allowed, and what so few seeds cannot exclude."""
    used = list(dict.fromkeys(one.how for one in contests if one.how != "none"))
    fewest = min(
        (min(pair.seeds) for one in contests for pair in one.pairs if min(pair.seeds)), default=0
    )
    if not used or not fewest:
        return "Nothing was decided."
    several = (
        " Several environments are several questions: each has its own."
        if len(contests) > 1
        else ""
    )
    if used == [MEANS]:
        error = (
            f"on one environment the probability of any wrong verdict about means is at most "
            f"{percent(alpha)} for every distribution within the bounds.{several} Tendencies "
            "stand beside them and decide nothing here."
        )
    else:
        seen = as_far_as_seen(fewest)
        error = (
            f"on one environment the probability of any wrong 'tends to score higher' is about "
            f"{percent(alpha)}, measured for many shapes of scores (docs/statistics.md).{several} "
            "The interval of a share of pairs excludes 0.50 exactly where the pair is decided. "
            f"{seen[0].upper()}{seen[1:]}; {_bounded()}."
        )
    return (
        f"Decided by {' and by '.join(used)}; {error} Not distinguished does not mean equal. To "
        "add seeds until it is decided, without fooling oneself: sterling compare --until-decided."
    )


def _bounded() -> str:
    return "where scores have bounds, --about mean decides"


def _sorted(pair: Pair) -> tuple[str, str, Estimate, Estimate]:
    """Winner, loser, difference and probability, seen from the winner."""
    assert pair.difference is not None
    assert pair.better is not None
    if pair.verdict == "larger":
        return pair.first, pair.second, pair.difference, pair.better
    return pair.second, pair.first, turned(pair.difference, 0.0), turned(pair.better, 1.0)


def _by(made: Estimate) -> str:
    return f"difference of means {made}"


def _seeds(pair: Pair) -> str:
    first, second = pair.seeds
    return f"with {count(first, 'seed')} each" if first == second else f"with {first} and {second}"


def _more(pair: Pair) -> str:
    """What more seeds would bring."""
    if pair.need is None:
        return "As it looks, no number of seeds would tell them apart."
    least = min(pair.seeds)
    if pair.need > MANY:
        many = round(pair.need, 2 - len(str(pair.need)))
        return f"A tendency as weak as it looks would take some {many:,} seeds each to show."
    extra = pair.need - least
    if extra <= 0:
        return "A tendency as strong as it looks should show with so many seeds in 4 of 5 cases."
    return (
        f"If it is as strong as it looks, {pair.need} seeds each would show it in 4 of 5 cases: "
        f"run {extra} more."
    )
