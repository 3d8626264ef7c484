"""The score of a periodic evaluation by which policies are judged: the return, or in a run on texts
alone the loss on those that it holds out."""

from __future__ import annotations

import dataclasses

from sterling.statistics.scores.headline import HELD_OUT_LOSS
from sterling.training.config.settings import Settings


@dataclasses.dataclass(frozen=True)
class JudgedScore:
    """What policies are judged by."""

    column: str = "evaluation/return"  # of a row of metrics
    name: str = "return"  # in a sentence
    better: int = 1  # 1: higher is better, -1: lower
    chosen: str = "chosen_return"  # what result.json calls the score that chose the best policy

    def is_better(self, one: float, other: float) -> bool:
        """Whether a score is better than another one."""
        return self.better * (one - other) > 0

    @property
    def words(self) -> tuple[str, str]:
        """Return the words for the best of several scores, and for becoming better."""
        return ("highest", "exceed") if self.better > 0 else ("lowest", "fall below")


RETURN = JudgedScore()
LOSS = JudgedScore(HELD_OUT_LOSS, "held-out loss", -1, "chosen_loss")


def judged_score(settings: Settings) -> JudgedScore:
    """Return what the policies of a run are judged by."""
    return LOSS if settings.holds_out_texts else RETURN
