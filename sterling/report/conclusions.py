"""One sentence about each environment, however many labels are compared on it.

Two labels get the sentence of their pair, with its numbers (``verdict_words``). Of more labels the
numbers of the pairs stand in the table; the sentence says who tends to score higher than whom.
"""

from __future__ import annotations

from collections.abc import Sequence

from sterling.report.overall_scores import OverallComparison
from sterling.report.pairwise_contest import EnvironmentComparison, PairComparison
from sterling.report.text_tables import join_words, pluralise
from sterling.report.verdict_words import overall_sentence, pair_sentences
from sterling.statistics.comparisons.comparison_result import directions_disagree, includes_half

LabelPair = tuple[str, str]


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
    return [f"{where} {_relations(decided, equal, does)}."]


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
    decided = [_winner_first(pair) for pair in compared if pair.verdict != "equal"]
    equal = [(pair.first, pair.second) for pair in compared if pair.verdict == "equal"]
    text = f"On {one.environment} {_relations(decided, equal, does)}"
    return f"{text}; {why}." if reasons else f"{text}."


def _relations(decided: Sequence[LabelPair], equal: Sequence[LabelPair], does: str) -> str:
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


def _winner_first(pair: PairComparison) -> LabelPair:
    named = (pair.first, pair.second)
    return named if pair.verdict == "larger" else (named[1], named[0])
