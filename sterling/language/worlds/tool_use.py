"""Tasks with tools: the seat may call some before it answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from sterling.language import posing
from sterling.language.scene import Message, Stage
from sterling.language.task import Family, Task, aloud
from sterling.language.tools import Call, Tool, answer, calls, registry
from sterling.language.worlds.single import question
from sterling.types import Mistake

AT_ONCE = 4  # calls of one turn that are answered

# Families whose prompt is an expression with an equals sign: a calculator solves them.
EXPRESSIONS = ("arithmetic", "chain", "modular-addition")


class ToolUse:
    """A task whose answer may be preceded by up to ``limit`` turns that call tools.

    How calls are written: :mod:`sterling.language.tools`; what is only thought calls nothing. The
    results come back as messages of role "tool", one for each call; what is wrong with a call comes
    back as ``error: ...``. A turn that calls is worth 0 with the reason "call", "failed call" (the
    tool said no) or "malformed call"; the answer is worth what the family gives. A call where an
    answer is due is "too many calls", worth 0.

    Args:
        family: where the tasks come from.
        tools: names (:func:`sterling.language.tools.find`) joined by "+", or a list of names,
            tools and functions.
        limit: turns that may call tools, at least 1.
        describe: tell the tools first, as models that were not trained for this world need: as the
            chat template does where it has tools called as they are here (Qwen2.5's and Qwen3's),
            else in a system message. By default nothing is told: small models learn from
            demonstrations, and every character costs them.
    """

    seats = 1

    def __init__(
        self,
        family: Family,
        tools: str | Iterable[str | Tool | Callable[..., Any]] = "calc+python",
        limit: int = 3,
        describe: bool = False,
    ):
        if limit < 1:
            raise Mistake(f"{limit} turns to call tools in are none; give at least 1")
        self.family, self.levels, self.turns = family, family.levels, limit + 1
        self.tools = registry(tools.split("+") if isinstance(tools, str) else tools)
        self.describe = describe
        self.name = f"tools:{family.name}"

    def begin(self, seed: int, level: int) -> _Workshop:
        """Pose the task of this seed and level."""
        return _Workshop(self, self.family.sample(seed, level))

    def count(self, level: int) -> int:
        """How many tasks the family has; 0: without end."""
        return posing.count(self.family, level)

    def solve(self, scene: _Workshop) -> str:
        """Call the calculator where it solves the task, then say what it said."""
        family, task = self.family, scene.task
        computed = family.name in EXPRESSIONS and "calc" in self.tools
        if computed and scene.calls_left and not scene.results:
            return f"<calc>{task.prompt.rstrip('=')}</calc>"
        last = scene.results[-1] if scene.results else ""
        return last if last and family.verify(task, last).reward == 1.0 else family.solve(task)


class _Workshop(Stage):
    def __init__(self, world: ToolUse, task: Task):
        super().__init__()
        self.world, self.task = world, task
        self.results: list[str] = []  # of calls that went well
        self.ask(0, *(_described(world.tools, task) if world.describe else question(task)))

    @property
    def calls_left(self) -> int:
        return self.world.turns - 1 - len(self.verdicts[0])

    def hear(self, seat: int, text: str) -> None:
        found = calls(aloud(text), self.world.tools)
        if not found:
            self.verdicts[seat].append(self.world.family.verify(self.task, text))
        elif not self.calls_left:
            self.judge(seat, 0.0, "too many calls")
        else:
            self._reply(seat, found)

    def _reply(self, seat: int, found: list[Call]) -> None:
        replies = [answer(call, self.world.tools) for call in found[:AT_ONCE]]
        if len(found) > AT_ONCE:
            replies.append((False, f"error: at most {AT_ONCE} calls at once"))
        self.results += [reply for good, reply in replies if good]
        reason = "call" if all(good for good, _ in replies) else "failed call"
        self.judge(seat, 0.0, "malformed call" if any(each.fault for each in found) else reason)
        self.ask(seat, *(Message("tool", reply) for _, reply in replies))


def _described(tools: dict[str, Tool], task: Task) -> tuple[Message, ...]:
    schemas = tuple(json.dumps(each.schema) for each in tools.values())
    return Message("system", task.system, schemas), Message("user", task.prompt)
