"""Decisions in words: what may be said, and no more."""

from __future__ import annotations

from sterling.report.contest import Contest, Pair
from sterling.report.overall import Better
from sterling.report.text import chance, count, percent
from sterling.statistics import Estimate

MANY = 200  # seeds; needing more, a difference is of no practical interest


def sentence(pair: Pair, environment: str) -> str:
    """One pair on one environment."""
    if pair.verdict == "undecided":
        return f"{pair.first} and {pair.second} on {environment}: not compared; {pair.why}."
    assert pair.difference is not None
    assert pair.better is not None
    if pair.verdict == "equal":
        return (
            f"{pair.first} and {pair.second} are not distinguished on {environment}: "
            f"{_by(pair.difference)} {_seeds(pair)}. {_more(pair)}"
        )
    winner, loser, by, better = _sorted(pair)
    return (
        f"{winner} beats {loser} on {environment}: {_by(by)} {_seeds(pair)}; "
        f"a run of {winner} is the better one with probability {chance(better)}."
    )


def sentences(contests: list[Contest]) -> list[str]:
    """Every pair of every contest; those without a finished run have nothing to be said."""
    return [
        sentence(pair, one.environment)
        for one in contests
        for pair in one.pairs
        if pair.difference is not None
    ]


def together(one: Better) -> str:
    """Two labels over all the environments that they share."""
    return (
        f"Over {count(len(one.environments), 'environment')} a run of {one.first} is better than "
        f"one of {one.second} with probability {chance(one.made)}."
    )


def method(contests: list[Contest], alpha: float) -> str:
    """How it was decided, and what error is allowed."""
    used = list(dict.fromkeys(one.how for one in contests if one.how != "none"))
    if not used:
        return "Nothing was decided."
    several = (
        " Several environments are several questions: each has its own."
        if len(contests) > 1
        else ""
    )
    return (
        f"Decided by {' and by '.join(used)}; on one environment the probability of any wrong "
        f"'beats' is at most {percent(alpha)}.{several} The interval of a difference is "
        "Welch's and may be wide where the order of the runs leaves no doubt. Not "
        "distinguished does not mean equal. To add seeds until it is decided, without "
        "fooling oneself: sterling compare --until-decided."
    )


def _sorted(pair: Pair) -> tuple[str, str, Estimate, Estimate]:
    """Winner, loser, difference and probability, seen from the winner."""
    assert pair.difference is not None
    assert pair.better is not None
    if pair.verdict == "larger":
        return pair.first, pair.second, pair.difference, pair.better
    return pair.second, pair.first, _turned(pair.difference, 0.0), _turned(pair.better, 1.0)


def _turned(made: Estimate, whole: float) -> Estimate:
    """``whole - made``, ends exchanged."""
    low = None if made.high is None else whole - made.high
    high = None if made.low is None else whole - made.low
    return Estimate(whole - made.value, low, high, made.n, made.method, made.level)


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
        return f"A difference as small as it looks would take some {many:,} seeds each to show."
    extra = pair.need - least
    if extra <= 0:
        return "A difference as large as it looks should show with so many seeds in 4 of 5 cases."
    return (
        f"If it is as large as it looks, {pair.need} seeds each would show it in 4 of 5 cases: "
        f"run {extra} more."
    )
