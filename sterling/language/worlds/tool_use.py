"""Tasks with tools: the seat may call tools before it answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from sterling.language import question_order
from sterling.language.scene import BaseScene, Message
from sterling.language.task import Family, Task, is_right, without_thoughts
from sterling.language.tools.tool_calls import Call, Tool, find_calls, run_call, tools_by_name
from sterling.language.worlds.single_question import question_messages
from sterling.system.mistake import Mistake

MAX_CALLS_PER_TURN = 4  # further calls of a turn are not answered

# Families whose prompt is an expression with an equals sign: a calculator solves them.
CALCULATOR_FAMILIES = ("arithmetic", "chain", "modular-addition")


class ToolUse:
    """A task whose answer may be preceded by up to ``limit`` turns that call tools.

    How calls are written: :mod:`sterling.language.tools.tool_calls`; calls inside a thought do not
    count. The results come back as messages of role "tool", one for each call; an error comes back
    as ``error: ...``. A turn that calls is worth 0 with the reason "call", "failed call" (the tool
    raised) or "malformed call"; the answer is worth what the family gives. A call where an answer
    is due is "too many calls", worth 0.

    Args:
        family: where the tasks come from.
        tools: names (:func:`sterling.language.tools.tool_calls.find_tool`) and references to your
            own (``FILE.py:make``) joined by "+", or a list of names, tools and functions.
        limit: turns that may call tools, at least 1.
        describe: describe the tools first, as models that were not trained for this world need:
            through the chat template if its calls have the form of those here (Qwen2.5's and
            Qwen3's), else in words in a system message. By default tools are not described: small
            models learn from demonstrations, and every character costs them.
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
            raise Mistake(
                f"limit, the number of turns that may call tools, must be at least 1, not {limit}"
            )
        self.family, self.levels, self.turns = family, family.levels, limit + 1
        self.tools = tools_by_name(tools.split("+") if isinstance(tools, str) else tools)
        self.describe = describe
        self.name = f"tools:{family.name}"

    def begin(self, seed: int, level: int) -> _ToolScene:
        """Return the scene of the task of this seed and level."""
        return _ToolScene(self, self.family.sample(seed, level))

    def count(self, level: int) -> int:
        """Return the number of tasks of the family; 0: unlimited."""
        return question_order.question_count(self.family, level)

    def solve(self, scene: _ToolScene) -> str:
        """Call the calculator if it solves the task, then answer with its result."""
        family, task = self.family, scene.task
        computed = family.name in CALCULATOR_FAMILIES and "calc" in self.tools
        if computed and scene.calls_left and not scene.results:
            return f"<calc>{task.prompt.rstrip('=')}</calc>"
        last = scene.results[-1] if scene.results else ""
        return last if last and is_right([family.verify(task, last)]) else family.solve(task)


class _ToolScene(BaseScene):
    def __init__(self, world: ToolUse, task: Task):
        super().__init__()
        self.world, self.task = world, task
        self.results: list[str] = []  # of successful calls
        self.ask(
            0,
            *(
                _messages_with_tools(world.tools, task)
                if world.describe
                else question_messages(task)
            ),
        )

    @property
    def calls_left(self) -> int:
        return self.world.turns - 1 - len(self.verdicts[0])

    def hear(self, seat: int, text: str) -> None:
        found = find_calls(without_thoughts(text), self.world.tools)
        if not found:
            self.verify(self.world.family, self.task, seat, text)
        elif not self.calls_left:
            self.judge(seat, 0.0, "too many calls")
        else:
            self._reply(seat, found)

    def _reply(self, seat: int, found: list[Call]) -> None:
        def run() -> list[tuple[bool, str]]:
            return [run_call(call, self.world.tools) for call in found[:MAX_CALLS_PER_TURN]]

        self.call(run, partial(self._tell, seat, found))

    def _tell(self, seat: int, found: list[Call], results: list[tuple[bool, str]]) -> None:
        replies = list(results)
        if len(found) > MAX_CALLS_PER_TURN:
            replies.append((False, f"error: at most {MAX_CALLS_PER_TURN} calls at once"))
        self.results += [reply for good, reply in replies if good]
        reason = "call" if all(good for good, _ in replies) else "failed call"
        self.judge(seat, 0.0, "malformed call" if any(each.fault for each in found) else reason)
        self.ask(seat, *(Message("tool", reply) for _, reply in replies))


def _messages_with_tools(tools: dict[str, Tool], task: Task) -> tuple[Message, ...]:
    schemas = tuple(json.dumps(each.schema) for each in tools.values())
    return Message("system", task.system, schemas), Message("user", task.prompt)
