"""The process that runs the tests. The solution answers it with data; it never shares memory with
the solution, so nothing that the solution patches, prints or exits with changes a comparison."""

import builtins
import json
import os
from typing import Any

from sterling.language.sandbox.values import Values

LONGEST = 4_000_000  # bytes of one answer of the solution


class Gone(BaseException):
    """The solution's process ended or answered nonsense. No ``except Exception`` of the tests
    catches it."""


class Link(Values):
    """The judge's ends of the two pipes."""

    def __init__(self, ask: int, hear: int):
        super().__init__()
        self.questions, self.answers = os.fdopen(ask, "w", buffering=1), os.fdopen(hear, "rb")

    def resolve(self, number: int) -> Any:
        """A stand-in for an object of the solution's."""
        return Remote(self, number)

    def encode(self, value: Any) -> Any:
        """Plain values and the solution's own objects can be passed to it, and nothing else."""
        return {"object": value._number} if type(value) is Remote else super().encode(value)

    def refer(self, value: Any) -> Any:
        """Refuse: the solution must not hold what the tests are made of."""
        raise TypeError(f"a {type(value).__name__} cannot be passed to the solution")

    def ask(self, what: str, target: Any, detail: Any = None) -> dict[str, Any]:
        """Send a question and wait for what the solution answers."""
        try:
            self.questions.write(json.dumps([what, target, detail]) + "\n")
        except BrokenPipeError:
            raise Gone("the program ended before it was tested") from None
        return self.hear()

    def hear(self) -> dict[str, Any]:
        """The next answer; what the solution raised is raised here."""
        line = self.answers.readline(LONGEST)
        if not line.endswith(b"\n"):
            raise Gone("an answer is too long" if line else "the program ended too early")
        try:
            reply = json.loads(line)
            name, text = reply.get("raised", ("", ""))
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise Gone("an answer is malformed") from None
        if name:
            raise _kind(str(name))(str(text))
        return reply

    def value(self, reply: dict[str, Any], name: str = "value") -> Any:
        """A value of an answer."""
        try:
            return self.decode(reply[name])
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise Gone("an answer is malformed") from None


def _kind(name: str) -> type[Exception]:
    """The built-in exception to raise. StopIteration would end a loop of the tests as if all were
    well, and some kinds need more than a text."""
    kind = getattr(builtins, name, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return RuntimeError
    special = (StopIteration, StopAsyncIteration, UnicodeError, ExceptionGroup)
    return RuntimeError if issubclass(kind, special) else kind


class Remote:
    """An object that lives in the solution: its attributes, calls and items can be asked for.

    It is compared by identity: the solution has no word in what equals what.
    """

    __slots__ = ("_link", "_number")
    __contains__ = None  # would ask the solution whether the expected value is right

    def __init__(self, link: Link, number: int):
        self._link, self._number = link, number

    def __getattr__(self, name: str) -> Any:
        return self._link.value(self._link.ask("attribute", self._number, name))

    def __call__(self, *positional: Any, **named: Any) -> Any:
        """Call it in the solution; arguments follow what it did to them in place."""
        sent = [self._link.encode(list(positional)), self._link.encode(named)]
        reply = self._link.ask("call", self._number, sent)
        for own, after in zip(positional, self._link.value(reply, "after"), strict=False):
            _follow(own, after)
        return self._link.value(reply)

    def __iter__(self) -> Any:
        iterator = self._link.value(self._link.ask("iterate", self._number))
        while found := self._link.value(self._link.ask("next", iterator._number)):
            yield found[0]

    def __len__(self) -> int:
        return self._special("__len__")()

    def __getitem__(self, key: Any) -> Any:
        return self._special("__getitem__")(key)

    def __str__(self) -> str:
        return self._special("__str__")()

    def _special(self, name: str) -> Any:
        try:
            return self.__getattr__(name)
        except AttributeError as error:  # what Python raises for an object without a length
            raise TypeError(str(error)) from None


def _follow(own: Any, after: Any) -> None:
    """Give an argument the contents that the solution left in it."""
    if type(own) is list and type(after) is list:
        own[:] = after
    elif type(own) in (dict, set) and type(after) is type(own):
        own.clear()
        own.update(after)


class Solution:
    """``solution.NAME`` in the tests: also names that would hide a built-in."""

    def __init__(self, link: Link):
        self._link = link

    def __getattr__(self, name: str) -> Any:
        return self._link.value(self._link.ask("name", name))


def judge(link: Link, tests: str | None) -> tuple[str, str]:
    """Run the tests, or without any only wait for the code: a verdict, and a line that says why.

    "gone" stands for an end that only the process's exit status can explain.
    """
    try:
        offered = link.hear().get("names", ())
        if tests is not None:
            _test(link, tests, set(map(str, offered)))
    except MemoryError:
        return "oom", "out of memory"
    except Gone as error:
        return "gone", str(error)
    except AssertionError as error:
        return "fail", _place(error, tests or "")
    except BaseException as error:  # whatever the tests or the solution raise is no pass
        return "error", f"{type(error).__name__}: {error}"
    return "pass", ""


def _test(link: Link, tests: str, offered: set[str]) -> None:
    program = compile(tests, "<tests>", "exec")
    names: dict[str, Any] = {"__name__": "tests", "solution": Solution(link)}
    for name in offered.intersection(_mentioned(program)) - set(dir(builtins)) - set(names):
        names[name] = getattr(names["solution"], name)
    exec(program, names)


def _mentioned(program: Any) -> set[str]:
    """Every name that a program or a function in it uses."""
    inner = (each for each in program.co_consts if hasattr(each, "co_names"))
    return set(program.co_names).union(*map(_mentioned, inner))


def _place(error: BaseException, tests: str) -> str:
    """The line of the tests that failed."""
    trace, number = error.__traceback__, 0
    while trace is not None:
        inside = trace.tb_frame.f_code.co_filename == "<tests>"
        number, trace = trace.tb_lineno if inside else number, trace.tb_next
    lines = tests.splitlines()
    return f"line {number}: {lines[number - 1].strip()}" if 0 < number <= len(lines) else str(error)
