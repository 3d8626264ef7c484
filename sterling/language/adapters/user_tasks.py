"""The user's own tasks: a Python file that makes tasks and judges responses.

In ``my_tasks.py`` either a function (``my_tasks.py:make``) that returns an object with
``sample(seed, level)`` and ``verify(task, response)``, or these two functions themselves
(``my_tasks.py``)::

    def sample(seed, level):
        return {"prompt": f"{seed}+1=", "answer": seed + 1}

    def verify(task, response):
        return response.strip() == str(task.answer)  # or any number, or a Verdict, or
        # named rewards such as {"right": 1, "format": 0.2} (sterling/language/named_rewards.py)

``sample`` returns a Task or such a dict (``system`` may be added). Optional are ``levels`` (a
range), ``solve(task)``, ``count`` (how many tasks each level has, if that is limited: seeds are
below it then, and every task is asked before any comes again), and ``seconds`` (a verdict's time
limit, 10 by default; a scene's own time limit does not shorten it). ``verify`` may be
``async``. ``verify_batch(tasks, responses)``, beside ``verify`` or instead of it, returns a list
with one verdict for each response: of a batch, with all responses to a task side by side, and of
one response where a verdict is due at once and there is no ``verify``. ``within = (0, 1)`` says
that rewards lie there, which makes intervals narrower.

``verify`` runs in processes of its own, in up to 32 at once: each has its own copy of what the file
keeps. ``processes = 1`` says otherwise. If it raises, hangs, dies or returns nonsense, one response
loses its reward, with a reason that says so, and nothing else happens. If ``verify_batch`` raises,
hangs or dies, it is asked about each task's responses alone: those of one task lose their rewards.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sterling.language.adapters.answer_worker import Worker
from sterling.language.batch_verdicts import Asked, ask_for_verdicts, length_fault
from sterling.language.named_rewards import read_rewards
from sterling.language.question_order import shuffled_index
from sterling.language.task import BatchJudge, Task, Verdict, check_level, has_half_character
from sterling.lookup import user_imports
from sterling.lookup.name_suggestions import did_you_mean
from sterling.system.mistake import Mistake
from sterling.system.shown_values import shown_value

SECONDS = 10.0
PROCESSES = 32  # verdicts may mostly wait, such as for a server
MAX_REASON_CHARACTERS = 40  # of a verdict's reason


class UserTasks:
    """A family made from a user's file; see the module's docstring."""

    def __init__(self, path: Path, maker: str = ""):
        self.name = f"{path}:{maker}" if maker else str(path)
        self.file = path.name
        self.made = _load_tasks(path, maker)
        self.levels: range = getattr(self.made, "levels", range(1))
        if not isinstance(self.levels, range) or len(self.levels) == 0:
            raise Mistake(f"{self.file}: 'levels' must be a range such as range(3)")
        self._single = "verify" if _has(self.made, "verify") else "verify_batch"
        self._count = getattr(self.made, "count", 0)
        if isinstance(self._count, bool) or not isinstance(self._count, int) or self._count < 0:
            raise Mistake(f"{self.file}: 'count' must be a number of tasks, such as 100")
        self.within = _read_bounds(self.made, self.file)
        setup = [os.path.abspath(path), maker]
        self._worker = make_worker(f"{__name__}:make_answerer", setup, self.made, self.file)

    @property
    def judge_text(self) -> str:
        """Return who judges, for messages."""
        return f"{self.file}: {self._single}"

    def count(self, level: int) -> int:
        """Return the user's ``count``; 0 if there is none."""
        check_level(self.name, self.levels, level)
        return self._count

    def sample(self, seed: int, level: int) -> Task:
        """Return what the user's ``sample`` returns, as a Task of this family."""
        check_level(self.name, self.levels, level)
        drawn = shuffled_index(seed, self._count) if self._count else seed
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
            detail = "prompt and system must be texts and the answer plain JSON (no tuples)"
            raise Mistake(f"{self.file}: sample({seed}, {level}): {detail}")
        answers = [fields["answer"]] if isinstance(fields["answer"], str) else []
        if any(map(has_half_character, (*texts, *answers))):
            detail = "prompt, system and answer must not hold half a character (a lone surrogate)"
            raise Mistake(f"{self.file}: sample({seed}, {level}): {detail}")
        return Task(self.name, seed, level, **fields)

    def verify(self, task: Task, response: str) -> Verdict:
        """Return the user's verdict, or that there is none within its time limit."""
        return self._judge(self._single, [(task, response)])[0]

    def verify_batch(self, tasks: Sequence[Task], responses: Sequence[str]) -> list[Verdict]:
        """Return the verdicts of the user's ``verify_batch``, within as many time limits."""
        return self._judge("verify_batch", [*zip(tasks, responses, strict=True)])

    def batch_judge(self, task: Task) -> BatchJudge | None:
        """Return itself if the user has a ``verify_batch``."""
        return self if _has(self.made, "verify_batch") else None

    def judges_elsewhere(self, task: Task) -> bool:
        """Return True: the user's code runs in a process of its own."""
        return True

    def _judge(self, function: str, asked: Asked) -> list[Verdict]:
        def ask(asked: Asked) -> list[Verdict]:
            tasks = [dataclasses.asdict(task) for task, _ in asked]
            question = [function, tasks, [response for _, response in asked]]
            replies = self._worker.ask(question, self._worker.limit * len(asked))
            return [_read_reply(reply, function) for reply in replies]

        return ask_for_verdicts(ask, asked, f"{self.file}: {function}")

    def solve(self, task: Task) -> str:
        """Return what the user's ``solve`` returns; Mistake if there is none."""
        if not hasattr(self.made, "solve"):
            detail = "demonstrations need a solve(task) that returns a right response"
            raise Mistake(f"{self.file} has no solve; {detail}")
        return str(self._call("solve", task))

    def close(self) -> None:
        """End the verifier's process."""
        self._worker.close()

    def _call(self, function: str, *given: Any) -> Any:
        try:
            return getattr(self.made, function)(*given)
        except (Exception, SystemExit) as error:  # the user's own error: reported in one line
            detail = f"{self.file}: {function} raised {type(error).__name__}: {_explained(error)}"
            raise Mistake(detail) from error

    def _fields(self, found: Any) -> dict[str, Any]:
        if not isinstance(found, dict) or not {"prompt", "answer"} <= set(found):
            form = '{"prompt": ..., "answer": ...}'
            raise Mistake(
                f"{self.file}: sample must return a Task or {form}, not {shown_value(found)}"
            )
        unknown = sorted(set(found) - {"prompt", "answer", "system"})
        if unknown:
            near = did_you_mean(
                unknown[0], ("prompt", "answer", "system"), "use prompt, answer, system"
            )
            raise Mistake(f"{self.file}: sample returned an unknown field {unknown[0]!r}{near}")
        return found


def make_worker(target: str, setup: Any, made: Any, file: str) -> Worker:
    """Return the worker of a user's file: the user's ``seconds`` (10) limit a verdict's time, and
    ``processes`` (32) how many may be judged at once."""
    seconds = getattr(made, "seconds", SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise Mistake(f"{file}: 'seconds' must be a number over 0")
    processes = getattr(made, "processes", PROCESSES)
    if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
        raise Mistake(f"{file}: 'processes' must be a whole number of at least 1, such as 1")
    return Worker(target, setup, float(seconds), processes=processes)


def _read_bounds(made: Any, file: str) -> tuple[float, float] | None:
    """Return the user's bounds of rewards, ``within``; None without them."""
    within = getattr(made, "within", None)
    if within is None:
        return None
    try:
        low, high = map(float, within)
    except (TypeError, ValueError):
        low, high = 0.0, 0.0
    if not low < high:
        raise Mistake(f"{file}: 'within' must be two numbers, the lower first, such as (0, 1)")
    return low, high


def _explained(error: BaseException) -> str:
    """Return an error's text; who takes a task for the dict that ``sample`` returned is told."""
    own = f"'{Task.__name__}' object is not subscriptable"
    return f"{error} (write task.prompt and task.answer)" if own == str(error) else str(error)


def _has(made: Any, function: str) -> bool:
    return callable(getattr(made, function, None))


def _read_reply(reply: dict[str, Any], function: str) -> Verdict:
    if "nonsense" in reply:
        return Verdict(0.0, f"verifier nonsense: {function} returned {reply['nonsense']}")
    return Verdict(reply["reward"], reply["reason"], rewards=reply["rewards"])


def make_answerer(setup: list[str]) -> Callable[[list[Any]], list[dict[str, Any]]]:
    """Return the function that judges ``[function, tasks, responses]``; called in the worker's
    process."""
    made = _load_tasks(Path(setup[0]), setup[1])

    def judge(question: list[Any]) -> list[dict[str, Any]]:
        tasks, responses = [Task(**each) for each in question[1]], question[2]
        try:
            if question[0] == "verify":
                return [_reply(awaited(made.verify(tasks[0], responses[0])))]
            found = awaited(made.verify_batch(tasks, responses))
        except TypeError as error:
            raise TypeError(_explained(error)) from error
        if fault := length_fault(found, len(tasks), "responses"):
            return [{"nonsense": fault}] * len(tasks)
        return [_reply(each) for each in found]

    return judge


def _reply(found: Any) -> dict[str, Any]:
    """Return a verdict, or what one was made of, as plain JSON."""
    try:
        is_verdict = isinstance(found, Verdict)
        verdict = found if is_verdict else Verdict.of_rewards(read_rewards(found))
    except ValueError as error:
        return {"nonsense": str(error) if isinstance(found, Mapping) else shown_value(found)}
    return {
        "reward": float(verdict.reward),
        "reason": str(verdict.reason)[:MAX_REASON_CHARACTERS],
        "rewards": {name: float(each) for name, each in verdict.rewards.items()},
    }


def awaited(found: Any) -> Any:
    """Return what a user's function returned; if that is awaitable, its result."""
    return asyncio.run(_wait(found)) if inspect.isawaitable(found) else found


async def _wait(found: Awaitable[Any]) -> Any:
    return await found


def _load_tasks(path: Path, maker: str) -> Any:
    """Return the object with the user's functions: what ``maker`` returns, or the module."""
    if not path.is_file():
        near = sorted(each.name for each in path.parent.glob("*.py"))
        raise Mistake(
            f"{path} is not a file{did_you_mean(path.name, near, 'give the path of a Python file')}"
        )
    module = _import_file(path)
    made = module
    if maker:
        function = getattr(module, maker, None)
        if not callable(function):
            known = [name for name, each in vars(module).items() if callable(each)]
            raise Mistake(f"{path.name} has no function {maker!r}{did_you_mean(maker, known)}")
        made = _run_user_code(function, f"{path.name}: {maker}()")
    verify = "verify(task, response) or verify_batch(tasks, responses)"
    for need, form in (("sample", "sample(seed, level)"), ("verify", verify)):
        if not _has(made, need) and not (need == "verify" and _has(made, "verify_batch")):
            where = f"what {maker}() returns" if maker else "the file"
            known = [x for x in user_imports.public_names(module) if callable(getattr(module, x))]
            other = f", or name what makes the tasks, as {path.name}:{known[-1]}" if known else ""
            choice = "" if maker else other
            raise Mistake(f"{path.name}: {where} has no {need}; add def {form}{choice}")
    return made


def _import_file(path: Path) -> Any:
    name = f"user_tasks_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up there
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # it can import files of its folder, as a script can
    loader = spec.loader
    _run_user_code(lambda: loader.exec_module(module), str(path.name))
    return module


def _run_user_code(function: Callable[[], Any], what: str) -> Any:
    try:
        return function()
    except (Exception, SystemExit) as error:  # sys.exit would end the command without a message
        raise Mistake(f"{what} raised {type(error).__name__}: {error}") from error
