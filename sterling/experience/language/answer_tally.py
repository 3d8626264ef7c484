"""Sums over the answers in a text world since the last row of metrics, beside its ``Tally``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from sterling.language.engine.transcript import Transcript
from sterling.statistics.scores.headline import NAMED_REWARD


@dataclasses.dataclass
class SeedSums:
    """The sums of one seed's answers."""

    answers: int = 0  # with a verdict
    contexts: int = 0  # of these answers
    cut: int = 0  # of these, that exceeded their length limit
    undelivered: int = 0  # answers that an agent program asked for and did not wait for
    lost: int = 0  # without a verdict
    lost_return: float = 0.0  # of the lost ones, each counted as the lowest reward of its batch
    rewards: dict[str, float] = dataclasses.field(default_factory=dict)  # by name: sum
    rewarded: dict[str, int] = dataclasses.field(default_factory=dict)  # by name: answers

    def add(self, lines: Sequence[Transcript]) -> None:
        """Add the answers of one batch."""
        sound = [line for line in lines if not line.failed]
        self.answers += len(sound)
        self.contexts += sum(len(line.contexts) for line in sound)
        self.cut += sum(line.cut for line in sound)
        self.undelivered += sum(line.undelivered for line in sound)
        self.lost += len(lines) - len(sound)
        lowest = min((line.reward for line in sound), default=0.0)
        self.lost_return += (len(lines) - len(sound)) * lowest
        for name, reward in (pair for line in sound for pair in line.rewards.items()):
            self.rewards[name] = self.rewards.get(name, 0.0) + reward
            self.rewarded[name] = self.rewarded.get(name, 0) + 1

    def mean(self, name: str) -> float | None:
        """Return the mean of a named reward; None if no answer had it."""
        return self.rewards[name] / self.rewarded[name] if name in self.rewards else None


class AnswerTally:
    """The sums of every seed."""

    def __init__(self) -> None:
        self._sums: dict[int, SeedSums] = {}

    def add(self, seed: int, lines: Sequence[Transcript]) -> None:
        """Add a batch of answers of the seed with this index."""
        self._sums.setdefault(seed, SeedSums()).add(lines)

    def clear(self) -> None:
        """Begin anew."""
        self._sums.clear()

    def columns(
        self, returns: Sequence[float | None], alive: Bool[np.ndarray, "seed"]
    ) -> dict[str, list[float | None]]:
        """Return the columns for a row of metrics: the share of answers that were cut off, the mean
        of each named reward over the answers that it applies to, the mean number of contexts if
        some have several, the number of a program's answers that were never delivered if there are
        any, and if answers were lost the return in which they count; ``returns``: each seed's mean
        without them."""
        own = [self._sums.get(seed, SeedSums()) for seed in range(len(returns))]
        if not any(each.answers for each in own):
            return {}
        names = dict.fromkeys(name for each in own for name in each.rewards)
        found: dict[str, list[float | None]] = {
            "cut": [each.cut / each.answers if each.answers else None for each in own],
            **{f"{NAMED_REWARD}{name}": [each.mean(name) for each in own] for name in names},
        }
        if any(each.contexts > each.answers for each in own):
            found["contexts"] = [each.contexts / each.answers if each.answers else None
                                 for each in own]  # fmt: skip
        if any(each.undelivered for each in own):
            found["undelivered"] = [float(each.undelivered) for each in own]
        if any(each.lost for each in own):
            pairs = zip(own, returns, strict=True)
            found["return_judged"] = list(returns)
            found["return"] = [_with_lost(each, judged) for each, judged in pairs]
        return {
            f"data/{name}": [x if is_on else None for x, is_on in zip(each, alive, strict=True)]
            for name, each in found.items()
        }

    def to_json(self) -> list[Any]:
        """Return the sums as plain values, for a checkpoint."""
        return [[seed, dataclasses.asdict(each)] for seed, each in self._sums.items()]

    def restore(self, stored: Sequence[Any]) -> None:
        """Take the sums that :meth:`to_json` returned."""
        self._sums = {seed: SeedSums(**each) for seed, each in stored}


def _with_lost(sums: SeedSums, judged: float | None) -> float | None:
    """Return a seed's mean return in which each lost answer counts as the lowest of its batch."""
    if judged is None:
        return None
    return (judged * sums.answers + sums.lost_return) / (sums.answers + sums.lost)
