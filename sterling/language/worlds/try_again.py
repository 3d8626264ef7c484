"""A task with feedback: whoever is not right may try again, for less."""

from __future__ import annotations

from sterling.language import posing
from sterling.language.scene import Message, Stage
from sterling.language.task import Family, Task
from sterling.language.worlds.single import question
from sterling.types import Mistake


class TryAgain:
    """Up to ``attempts`` answers to one task of a family.

    A right answer at attempt k (from 0) is worth ``keep**k`` and ends the scene. Any other is
    worth nothing and is answered by the verdict's reason, such as ``wrong, try again``; it never
    tells more than the reason. The last attempt is worth ``keep**k`` times what the family gives
    for it, also where that is only a part.

    Args:
        family: where the tasks come from.
        attempts: most answers to one task, at least 1.
        keep: in (0, 1], what each further attempt leaves of the reward: below 1 it is better to be
            right at once.
    """

    seats = 1

    def __init__(self, family: Family, attempts: int = 3, keep: float = 0.8):
        if attempts < 1:
            raise Mistake(f"{attempts} attempts leave nothing to say; give at least 1")
        if not 0.0 < keep <= 1.0:
            raise Mistake(f"keep is the share of reward a further attempt leaves, not {keep}")
        self.family, self.levels, self.turns, self.keep = family, family.levels, attempts, keep
        self.name = f"try-again:{family.name}"

    def begin(self, seed: int, level: int) -> _Attempts:
        """Pose the task of this seed and level."""
        return _Attempts(self, self.family.sample(seed, level))

    def count(self, level: int) -> int:
        """How many tasks the family has; 0: without end."""
        return posing.count(self.family, level)

    def solve(self, scene: _Attempts) -> str:
        """The family's own solution, whatever was tried before."""
        return self.family.solve(scene.task)


class _Attempts(Stage):
    def __init__(self, world: TryAgain, task: Task):
        super().__init__()
        self.world, self.task = world, task
        self.ask(0, *question(task))

    def hear(self, seat: int, text: str) -> None:
        verdict = self.world.family.verify(self.task, text)
        tried = len(self.verdicts[seat])
        if verdict.reward >= 1.0 or tried + 1 == self.world.turns:
            return self.judge(seat, self.world.keep**tried * verdict.reward, verdict.reason)
        self.judge(seat, 0.0, verdict.reason)
        self.ask(seat, Message("user", f"{verdict.reason}, try again"))
