"""A task family as a world: one question, one answer."""

from __future__ import annotations

from sterling.language import question_order
from sterling.language.scene import BaseScene, Message
from sterling.language.task import Family, Task


def question_messages(task: Task) -> tuple[Message, ...]:
    """Return the messages that ask a task: its system message if it has one, and the prompt."""
    system = (Message("system", task.system),) if task.system else ()
    return (*system, Message("user", task.prompt))


class SingleTurn:
    """Every scene is one task: the seat answers once and gets the family's verdict."""

    seats, turns = 1, 1

    def __init__(self, family: Family):
        self.family, self.name, self.levels = family, family.name, family.levels

    def begin(self, seed: int, level: int) -> _Question:
        """Return the scene of the task of this seed and level."""
        return _Question(self.family, self.family.sample(seed, level))

    def count(self, level: int) -> int:
        """Return the number of tasks of the family; 0: unlimited."""
        return question_order.question_count(self.family, level)

    def solve(self, scene: _Question) -> str:
        """Return the family's own solution."""
        return self.family.solve(scene.task)


class _Question(BaseScene):
    def __init__(self, family: Family, task: Task):
        super().__init__()
        self.family, self.task = family, task
        self.ask(0, *question_messages(task))

    def hear(self, seat: int, text: str) -> None:
        self.verify(self.family, self.task, seat, text)
