"""Several families as one, in given shares."""

from __future__ import annotations

from collections.abc import Sequence

from sterling.language.task import (
    BatchJudge,
    Family,
    Task,
    Verdict,
    batch_judge,
    check_level,
    judges_elsewhere,
    task_random,
)
from sterling.system.mistake import Mistake


class Mixture:
    """A family that draws each task from one of several.

    ``weights`` are the members' shares (any positive numbers). Level k is each member's k-th level,
    or its last if it has fewer. A task carries its member's name and level, by which ``verify`` and
    ``solve`` find the member; two members must not share a name (Mistake).
    """

    def __init__(self, name: str, members: Sequence[Family], weights: Sequence[float]):
        names = [each.name for each in members]
        if len(set(names)) < len(names):
            raise Mistake(f"{name} names a family twice; give it a weight instead: {names[0]}*2")
        self.name = name
        self.members = {each.name: each for each in members}
        self.weights = list(weights)
        self.levels = range(max(len(each.levels) for each in members))

    def sample(self, seed: int, level: int) -> Task:
        """Return a task of the member that this seed and level draw."""
        check_level(self.name, self.levels, level)
        random = task_random("mixture", seed, level)  # does not depend on a member's path
        member = random.choices(list(self.members.values()), self.weights)[0]
        return member.sample(seed, member.levels[min(level, len(member.levels) - 1)])

    def verify(self, task: Task, response: str) -> Verdict:
        """Return the member's verdict."""
        return self._member(task).verify(task, response)

    def batch_judge(self, task: Task) -> BatchJudge | None:
        """Return what judges a member's answers together with others."""
        return batch_judge(self._member(task), task)

    def judges_elsewhere(self, task: Task) -> bool:
        """Whether the member judges in other processes."""
        return judges_elsewhere(self._member(task), task)

    def solve(self, task: Task) -> str:
        """Return the member's solution."""
        return self._member(task).solve(task)

    def _member(self, task: Task) -> Family:
        if task.family not in self.members:
            raise Mistake(
                f"{self.name} has no family {task.family}; use the family that made the task"
            )
        return self.members[task.family]
