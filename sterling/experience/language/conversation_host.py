"""The text world of conversations on this machine, and a count of the answers that it did not
judge."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from sterling.experience.language.answer_tally import AnswerTally
from sterling.experience.language.raw_rewards import RawRewards
from sterling.language.engine.transcript import Transcript
from sterling.language.scene import TextWorld, check_contexts, check_seat, context_count
from sterling.language.scene_dialogue import ChatSettings
from sterling.system.terminal_messages import print_notice
from sterling.types import Generations, Mistake

RECENT_ANSWERS = 1_000  # of these at most MOST_UNJUDGED may lack a verdict
MOST_UNJUDGED = 0.1
FEWEST_ANSWERS = 20  # before which no share stops a run


@dataclasses.dataclass(eq=False)
class ConversationHost:
    """The text world, how the model speaks in it, and what failed so far."""

    world: TextWorld
    voice: ChatSettings
    needs: Generations
    levels: tuple[int, ...]  # the arms
    raw: RawRewards | None = None  # places of named rewards, if batches are stored
    failures: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    timeouts: int = 0  # verdicts that exceeded their time limit
    answers: int = 0  # transcripts in which the model spoke
    unjudged: int = 0  # those of them without a verdict, because their scene failed
    first_reason: str = ""  # why the first of these has none
    tally: AnswerTally = dataclasses.field(default_factory=AnswerTally)  # since the last row
    _recent: collections.deque[bool] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=RECENT_ANSWERS)
    )

    @property
    def rows(self) -> int:
        """Return the number of rows in one batch."""
        lines = self.needs.prompts * self.needs.group * self.world.seats
        return lines * context_count(self.world)

    def close(self) -> None:
        """Close the world, and report how many verdicts exceeded their time limit."""
        if self.timeouts:
            said = f"{self.timeouts} verdicts of {self.world.name} ran past their time limit"
            print_notice(f"{said}: each is worth 0")
        self.timeouts = 0
        getattr(self.world, "close", lambda: None)()

    def note(self, lines: Sequence[Transcript]) -> None:
        """Keep the first 100 failures for the run's result, and count answers without a verdict.

        Raises Mistake for a seat that the world does not have, if every scene failed, or if more
        than a tenth of the latest 1,000 answers (at least 20) have no verdict.
        """
        for line in lines:
            check_seat(self.world, line.seat)
            check_contexts(self.world, len(line.contexts))
        broken = [line for line in lines if line.failed]
        self.timeouts += sum(line.timeouts for line in lines)
        room = max(0, 100 - len(self.failures))
        self.failures += [(line.scene, line.failed) for line in broken[:room]]
        if lines and len(broken) == len(lines):
            raise Mistake(
                f"every scene of {self.world.name} failed, the first with: {broken[0].failed}"
            )
        self._count(line for line in lines if line.turns)

    def answer_columns(
        self, returns: Sequence[float | None], alive: Bool[np.ndarray, "seed"]
    ) -> dict[str, list[float | None]]:
        """Return :meth:`AnswerTally.columns`."""
        return self.tally.columns(returns, alive)

    def unjudged_text(self) -> str:
        """Return how many answers have no verdict, of how many, with the first reason; "" for
        none."""
        if not self.unjudged:
            return ""
        return f"{self.unjudged:,} of {self.answers:,}, the first: {self.first_reason}"

    def counts_to_json(self) -> dict[str, Any]:
        """Return the counts of answers and of those without a verdict, for a checkpoint."""
        recent = "".join("01"[lost] for lost in self._recent)
        counts = {"answers": self.answers, "unjudged": self.unjudged, "recent": recent}
        if self.raw is not None:
            counts["names"] = self.raw.names
        return {**counts, "first_reason": self.first_reason, "tally": self.tally.to_json()}

    def restore_counts(self, counts: dict[str, Any]) -> None:
        """Take the counts that :meth:`counts_to_json` returned."""
        self.answers, self.unjudged = counts["answers"], counts["unjudged"]
        self.first_reason = counts["first_reason"]
        self._recent.extend(lost == "1" for lost in counts["recent"])
        self.tally.restore(counts.get("tally", []))  # older checkpoints have none
        if self.raw is not None:
            self.raw.names[:] = counts.get("names", self.raw.names)

    def _count(self, spoken: Any) -> None:
        for line in spoken:
            self.answers += 1
            self.unjudged += bool(line.failed)
            self.first_reason = self.first_reason or line.failed
            self._recent.append(bool(line.failed))
        share = sum(self._recent) / max(len(self._recent), 1)
        if share > MOST_UNJUDGED and len(self._recent) >= FEWEST_ANSWERS:
            raise Mistake(
                f"{share:.0%} of the last {len(self._recent):,} answers in {self.world.name} have "
                f"no verdict (the first: {self.first_reason}). Correct the verifier: it must give "
                "each answer a finite number, or named ones"
            )
