"""Tasks with feedback: after a wrong answer the seat may try again, for less reward."""

from __future__ import annotations

import dataclasses

from sterling.language import question_order
from sterling.language.named_rewards import RightRule
from sterling.language.scene import BaseScene, Message
from sterling.language.task import RIGHT, WRONG, Family, Task, Verdict
from sterling.language.worlds.single_question import question_messages
from sterling.system.mistake import Mistake


class TryAgain:
    """Up to ``attempts`` answers to one task of a family.

    A right answer (``right_if``; of a run, as its settings say) at attempt k (from 0) is worth
    ``keep**k`` times the family's reward, usually 1, and ends the scene. Any other answer
    is worth 0, and the reply is the verdict's reason, such as ``wrong, try again``, and nothing
    more. The last attempt is worth ``keep**k`` times the family's reward, also where that is
    partial.

    Args:
        family: where the tasks come from.
        attempts: most answers to one task, at least 1.
        keep: in (0, 1], the factor of the reward for each further attempt: below 1 it is better to
            be right at once.
    """

    seats = 1

    def __init__(self, family: Family, attempts: int = 3, keep: float = 0.8):
        if attempts < 1:
            raise Mistake(f"attempts must be at least 1, not {attempts}")
        if not 0.0 < keep <= 1.0:
            raise Mistake(
                f"keep, the reward's factor for a further attempt, must be in (0, 1], not {keep}"
            )
        self.family, self.levels, self.turns, self.keep = family, family.levels, attempts, keep
        self.name, self.right_if = f"try-again:{family.name}", RightRule()

    def begin(self, seed: int, level: int) -> _Attempts:
        """Return the scene of the task of this seed and level."""
        return _Attempts(self, self.family.sample(seed, level))

    def count(self, level: int) -> int:
        """Return the number of tasks of the family; 0: unlimited."""
        return question_order.question_count(self.family, level)

    def solve(self, scene: _Attempts) -> str:
        """Return the family's own solution, whatever was tried before."""
        return self.family.solve(scene.task)


class _Attempts(BaseScene):
    def __init__(self, world: TryAgain, task: Task):
        super().__init__()
        self.world, self.task = world, task
        self.ask(0, *question_messages(task))

    def hear(self, seat: int, text: str) -> None:
        self.verify(self.world.family, self.task, seat, text)

    def take_verdict(self, seat: int, verdict: Verdict) -> None:
        tried = len(self.verdicts[seat])
        right = self.world.right_if([verdict])
        if right or tried + 1 == self.world.turns:
            verdict = verdict.times(self.world.keep**tried)
            self.verdicts[seat].append(dataclasses.replace(verdict, right=right))
            return
        reason = WRONG.reason if verdict.reason == RIGHT.reason else verdict.reason
        self.judge(seat, 0.0, reason)
        self.ask(seat, Message("user", f"{reason}, try again"))
