"""A task family as a world: one question, one answer."""

from __future__ import annotations

from sterling.language import posing
from sterling.language.scene import Message, Stage
from sterling.language.task import Family, Task


def question(task: Task) -> tuple[Message, ...]:
    """The messages that pose a task: its system message if it has one, and the prompt."""
    system = (Message("system", task.system),) if task.system else ()
    return (*system, Message("user", task.prompt))


class Single:
    """Every scene is one task: the seat answers once and gets the family's verdict."""

    seats, turns = 1, 1

    def __init__(self, family: Family):
        self.family, self.name, self.levels = family, family.name, family.levels

    def begin(self, seed: int, level: int) -> _Question:
        """Pose the task of this seed and level."""
        return _Question(self.family, self.family.sample(seed, level))

    def count(self, level: int) -> int:
        """How many tasks the family has; 0: without end."""
        return posing.count(self.family, level)

    def solve(self, scene: _Question) -> str:
        """The family's own solution."""
        return self.family.solve(scene.task)


class _Question(Stage):
    def __init__(self, family: Family, task: Task):
        super().__init__()
        self.family, self.task = family, task
        self.ask(0, *question(task))

    def hear(self, seat: int, text: str) -> None:
        self.verdicts[seat].append(self.family.verify(self.task, text))
