"""The user's own tasks: a Python file that poses and judges.

In ``my_tasks.py`` either a function (``my_tasks.py:make``) that returns an object with
``sample(seed, level)`` and ``verify(task, response)``, or these two functions themselves
(``my_tasks.py``)::

    def sample(seed, level):
        return {"prompt": f"{seed}+1=", "answer": seed + 1}

    def verify(task, response):
        return response.strip() == str(task.answer)  # or a number in [0, 1], or a Verdict

``sample`` returns a Task or such a dict (``system`` may be added). Optional beside them:
``levels`` (a range), ``solve(task)``, ``count`` (how many tasks each level has, where that has an
end: seeds are below it then, and every task is posed before any comes again), and ``seconds`` (a
verdict's time limit, 10 by default; a scene's patience does not shorten it).

``verify`` runs in a process of its own: one that raises, hangs, dies or returns nonsense costs
one response its reward, under a reason of its own, and nothing else.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sterling.language.adapters.worker import Fault, Worker
from sterling.language.posing import shuffled
from sterling.language.task import Task, Verdict, check_level
from sterling.naming import hint
from sterling.types import Mistake

SECONDS = 10.0
LONGEST = 40  # characters of a reason


class UserTasks:
    """A family made of a user's file; see the module's text.

    ``faults`` holds the first message of each kind of fault that the verifier had.
    """

    def __init__(self, path: Path, maker: str = ""):
        self.name = f"{path}:{maker}" if maker else str(path)
        self.file = path.name
        self._made = _load(path, maker)
        self.levels: range = getattr(self._made, "levels", range(1))
        seconds = getattr(self._made, "seconds", SECONDS)
        if not isinstance(self.levels, range) or len(self.levels) == 0:
            raise Mistake(f"{self.file}: 'levels' must be a range such as range(3)")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise Mistake(f"{self.file}: 'seconds' must be a number over 0")
        self._count = getattr(self._made, "count", 0)
        if isinstance(self._count, bool) or not isinstance(self._count, int) or self._count < 0:
            raise Mistake(f"{self.file}: 'count' must be a number of tasks, such as 100")
        setup = [os.path.abspath(path), maker]
        self._worker = Worker(f"{__name__}:answering", setup, float(seconds))

    def count(self, level: int) -> int:
        """The user's ``count``; 0 where there is none."""
        check_level(self.name, self.levels, level)
        return self._count

    def sample(self, seed: int, level: int) -> Task:
        """What the user's ``sample`` returns, as a Task of this family."""
        check_level(self.name, self.levels, level)
        drawn = shuffled(seed, self._count) if self._count else seed
        found = self._call("sample", drawn, level)
        if isinstance(found, Task):
            found = {"prompt": found.prompt, "answer": found.answer, "system": found.system}
        fields = self._fields(found)
        try:
            plain = json.loads(json.dumps(fields["answer"])) == fields["answer"]
        except (TypeError, ValueError):
            plain = False
        texts = (fields["prompt"], fields.get("system", ""))
        if not plain or not all(isinstance(text, str) for text in texts):
            said = "prompt and system must be texts and the answer plain JSON (no tuples)"
            raise Mistake(f"{self.file}: sample({seed}, {level}): {said}")
        return Task(self.name, seed, level, **fields)

    def verify(self, task: Task, response: str) -> Verdict:
        """What the user's ``verify`` returns, within its time limit."""
        try:
            said = self._worker.ask([dataclasses.asdict(task), response])
        except Fault as fault:
            return Verdict(0.0, f"verifier {fault.kind}: {fault.detail}")
        if "nonsense" in said:
            return Verdict(0.0, f"verifier nonsense: verify returned {said['nonsense']}")
        return Verdict(said["reward"], said["reason"])

    def solve(self, task: Task) -> str:
        """What the user's ``solve`` returns; Mistake where there is none."""
        if not hasattr(self._made, "solve"):
            said = "demonstrations need a solve(task) that returns a right response"
            raise Mistake(f"{self.file} has no solve; {said}")
        return str(self._call("solve", task))

    def close(self) -> None:
        """End the verifier's process."""
        self._worker.close()

    def _call(self, function: str, *given: Any) -> Any:
        try:
            return getattr(self._made, function)(*given)
        except (Exception, SystemExit) as error:  # the user's own: told in one line, with its cause
            said = f"{self.file}: {function} raised {type(error).__name__}: {error}"
            raise Mistake(said) from error

    def _fields(self, found: Any) -> dict[str, Any]:
        if not isinstance(found, dict) or not {"prompt", "answer"} <= set(found):
            form = '{"prompt": ..., "answer": ...}'
            raise Mistake(f"{self.file}: sample must return a Task or {form}, not {found!r:.60}")
        unknown = sorted(set(found) - {"prompt", "answer", "system"})
        if unknown:
            said = hint(unknown[0], ("prompt", "answer", "system"), "known: prompt, answer, system")
            raise Mistake(f"{self.file}: sample returned an unknown field {unknown[0]!r}{said}")
        return found


def answering(setup: list[str]) -> Callable[[list[Any]], dict[str, Any]]:
    """In the worker: what judges ``[task, response]``."""
    made = _load(Path(setup[0]), setup[1])

    def judge(question: list[Any]) -> dict[str, Any]:
        verdict = made.verify(Task(**question[0]), question[1])
        if not isinstance(verdict, Verdict):
            reward = _number(verdict)
            if reward is None:
                return {"nonsense": f"{verdict!r:.80}"}
            reason = "right" if reward == 1.0 else "partly" if reward > 0.0 else "wrong"
            verdict = Verdict(reward, reason)
        return {"reward": float(verdict.reward), "reason": str(verdict.reason)[:LONGEST]}

    return judge


def _number(value: Any) -> float | None:
    """A reward in [0, 1], also of NumPy's types; None for anything else."""
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        return None
    reward = float(value)
    return reward if math.isfinite(reward) and 0.0 <= reward <= 1.0 else None


def _load(path: Path, maker: str) -> Any:
    """The object with the user's functions: what ``maker`` returns, or the module."""
    if not path.is_file():
        near = sorted(each.name for each in path.parent.glob("*.py"))
        raise Mistake(f"{path} is no file{hint(path.name, near, 'give the path of a Python file')}")
    module = _module(path)
    made = module
    if maker:
        function = getattr(module, maker, None)
        if not callable(function):
            known = [name for name, each in vars(module).items() if callable(each)]
            raise Mistake(f"{path.name} has no function {maker!r}{hint(maker, known)}")
        made = _run(function, f"{path.name}: {maker}()")
    for need in ("sample", "verify"):
        if not callable(getattr(made, need, None)):
            where = f"what {maker}() returns" if maker else "the file"
            raise Mistake(
                f"{path.name}: {where} has no {need}; see docs of sterling.language.tasks"
            )
    return made


def _module(path: Path) -> Any:
    name = f"user_tasks_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up there
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # files beside it can be imported, as when it runs by itself
    loader = spec.loader
    _run(lambda: loader.exec_module(module), str(path.name))
    return module


def _run(function: Callable[[], Any], what: str) -> Any:
    try:
        return function()
    except (Exception, SystemExit) as error:  # sys.exit too: it would end the command unsaid
        raise Mistake(f"{what} raised {type(error).__name__}: {error}") from error
