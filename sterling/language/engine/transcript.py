"""What one seat heard and said in a scene, as tokens.

Most scenes are one *context*: what a seat says follows all that it heard and said before. A scene
may begin a seat's context anew (``Turn.fresh_context``): the tokens after that follow each other
alone. It may also continue after any earlier answer (``Turn.after``). Turns, verdicts and the
reward are those of the whole scene, whatever its contexts.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Collection, Sequence

from sterling.language.named_rewards import RightRule
from sterling.language.task import Verdict


@dataclasses.dataclass
class Transcript:
    """The tokens that one seat heard and said in a scene, of all its contexts."""

    scene: int  # the scene's number
    seat: int
    ids: list[int] = dataclasses.field(default_factory=list)
    own: list[bool] = dataclasses.field(default_factory=list)  # whether the model sampled it
    log_prob: list[float] = dataclasses.field(default_factory=list)
    turn: list[int] = dataclasses.field(default_factory=list)  # the turn each token belongs to
    turns: int = 0  # turns that the seat had
    verdicts: tuple[Verdict, ...] = ()  # one for each turn
    cut: bool = False  # the context was too short, or an answer longer than allowed
    full: bool = False  # the context was too short for this or another seat: the scene did not end
    failed: str = ""  # why the scene failed; empty: it did not
    right_if: RightRule = dataclasses.field(default_factory=RightRule)
    version: list[int] = dataclasses.field(default_factory=list)  # updates before each token
    starts: list[int] = dataclasses.field(default_factory=lambda: [0])  # where contexts begin
    open: int = 0  # the context to which is added
    undelivered: int = 0  # answers that were sampled, and left out since nobody received them

    def __post_init__(self) -> None:
        self.version = self.version or [0] * len(self.ids)

    @property
    def reward(self) -> float:
        """Return the transcript's reward: the sum over its verdicts."""
        return sum((verdict.reward for verdict in self.verdicts), 0.0)

    @property
    def usable(self) -> bool:
        """Whether the seat spoke, in a scene that did not fail."""
        return not self.failed and self.turns > 0

    @property
    def right(self) -> bool:
        """Whether the seat came to the right answer, as ``right_if`` says."""
        return not self.failed and self.right_if(self.verdicts)

    @property
    def rewards(self) -> dict[str, float]:
        """Return the transcript's named rewards, each added up over its verdicts."""
        found: dict[str, float] = {}
        for name, each in (pair for one in self.verdicts for pair in one.rewards.items()):
            found[name] = found.get(name, 0.0) + each
        return found

    @property
    def timeouts(self) -> int:
        """Return how many of the verdicts ran past their time limit; each of these is worth 0."""
        return sum(verdict.reason == "timeout" for verdict in self.verdicts)

    @property
    def contexts(self) -> list[slice]:
        """Return where the tokens of each context are, in their order."""
        ends = [*self.starts[1:], len(self.ids)]
        return [slice(*pair) for pair in zip(self.starts, ends, strict=True)]

    def context_of(self, turn: int) -> int:
        """Return the number of the context in which the seat had a turn."""
        return bisect.bisect_right(self.starts, self._end_of(turn) - 1) - 1

    @property
    def context(self) -> list[int]:
        """Return the tokens of the context to which is added."""
        return self.ids[self.contexts[self.open]]

    def until(self, turn: int | None) -> list[int]:
        """Return the tokens of the context in which the seat had a turn, up to the end of its
        answer; None: of the context to which is added."""
        if turn is None:
            return self.context
        return self.ids[self.starts[self.context_of(turn)] : self._end_of(turn)]

    @property
    def longest(self) -> int:
        """Return the number of tokens of the longest context."""
        return max(each.stop - each.start for each in self.contexts)

    def begin_context(self) -> None:
        """Begin a context: what follows does not see the tokens so far."""
        self.starts.append(len(self.ids))
        self.open = len(self.starts) - 1

    def follow(self, turn: int | None) -> None:
        """Have what follows continue after the seat's answer in a turn. If that is not the end of
        its context, a new one begins with the same tokens; they count as heard there."""
        if turn is None:
            return
        before, context = self.until(turn), self.context_of(turn)
        if self.contexts[context].stop == self._end_of(turn):
            self.open = context
        else:
            self.begin_context()
            self.hear(before)

    def _end_of(self, turn: int) -> int:
        """Return the place after the seat's answer in a turn."""
        return max(n for n, own in enumerate(self.own) if own and self.turn[n] == turn) + 1

    def hear(self, tokens: Sequence[int]) -> None:
        """Append tokens that others chose."""
        self._append(tokens, False, [0.0] * len(tokens), 0)

    def say(self, tokens: Sequence[int], log_prob: Sequence[float], version: int = 0) -> None:
        """Append tokens that the model chose, after so many updates (``version``); they end its
        turn."""
        self._append(tokens, True, log_prob, version)
        self.turns += 1

    def leave_out(self, turns: Collection[int]) -> None:
        """Remove these turns, whose answers nobody received and nothing follows: what was heard in
        them, what was said, and contexts of nothing else. Later turns are renumbered."""
        if not turns:
            return
        parts = [[n for n in range(len(self.ids))[each] if self.turn[n] not in turns]
                 for each in self.contexts]  # fmt: skip
        kept = [part for part in parts if part]
        for name in ("ids", "own", "log_prob", "turn", "version"):
            values = getattr(self, name)
            setattr(self, name, [values[n] for part in kept for n in part])
        self.turn = [turn - sum(each < turn for each in turns) for turn in self.turn]
        self.starts = [0, *itertools.accumulate(map(len, kept[:-1]))]
        self.turns -= len(turns)
        self.undelivered += len(turns)

    def _append(
        self, tokens: Sequence[int], own: bool, log_prob: Sequence[float], version: int
    ) -> None:
        at, count = self.contexts[self.open].stop, len(tokens)
        self.ids[at:at] = tokens
        self.own[at:at] = [own] * count
        self.log_prob[at:at] = log_prob
        self.turn[at:at] = [self.turns] * count
        self.version[at:at] = [version] * count
        later = slice(self.open + 1, None)
        self.starts[later] = [start + count for start in self.starts[later]]
