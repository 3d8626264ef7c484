"""The process that runs the tests. The solution answers its questions with data and never shares
memory with it, so nothing that the solution patches, prints or exits with changes a comparison."""

import builtins
import json
import os
from typing import Any

from sterling.language.sandbox.json_values import ValueCodec

MAX_ANSWER_BYTES = 4_000_000  # of one answer of the solution


class SolutionGone(BaseException):
    """The solution's process ended or answered nonsense. A BaseException, so that no ``except
    Exception`` of the tests catches it."""


class SolutionLink(ValueCodec):
    """The judge's ends of the two pipes to the solution."""

    def __init__(self, ask: int, hear: int):
        super().__init__()
        self.questions, self.answers = os.fdopen(ask, "w", buffering=1), os.fdopen(hear, "rb")

    def resolve(self, number: int) -> Any:
        """Return a stand-in for an object in the solution."""
        return RemoteObject(self, number)

    def encode(self, value: Any) -> Any:
        """Encode a plain value or an object of the solution; nothing else can be passed to it."""
        return {"object": value._number} if type(value) is RemoteObject else super().encode(value)

    def refer(self, value: Any) -> Any:
        """Refuse to pass an object: the solution must not hold parts of the tests."""
        raise TypeError(f"a {type(value).__name__} cannot be passed to the solution")

    def ask(self, what: str, target: Any, detail: Any = None) -> dict[str, Any]:
        """Send a question; return the solution's answer."""
        try:
            self.questions.write(json.dumps([what, target, detail]) + "\n")
        except BrokenPipeError:
            raise SolutionGone("the program ended before it was tested") from None
        return self.hear()

    def hear(self) -> dict[str, Any]:
        """Return the next answer; an exception that the solution raised is raised here."""
        line = self.answers.readline(MAX_ANSWER_BYTES)
        if not line.endswith(b"\n"):
            raise SolutionGone("an answer is too long" if line else "the program ended too early")
        try:
            reply = json.loads(line)
            name, text = reply.get("raised", ("", ""))
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise SolutionGone("an answer is malformed") from None
        if name:
            raise _exception_class(str(name))(str(text))
        return reply

    def value(self, reply: dict[str, Any], name: str = "value") -> Any:
        """Return a value of an answer."""
        try:
            return self.decode(reply[name])
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise SolutionGone("an answer is malformed") from None


def _exception_class(name: str) -> type[Exception]:
    """Return the built-in exception to raise. StopIteration would end a loop of the tests as if all
    were well, and some kinds need more than a text."""
    kind = getattr(builtins, name, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return RuntimeError
    special = (StopIteration, StopAsyncIteration, UnicodeError, ExceptionGroup)
    return RuntimeError if issubclass(kind, special) else kind


class RemoteObject:
    """An object in the solution: it can be called, iterated, indexed and asked for attributes.

    It is compared by identity, so the solution cannot decide what equals what.
    """

    __slots__ = ("_link", "_number")
    __contains__ = None  # would ask the solution whether the expected value is right

    def __init__(self, link: SolutionLink, number: int):
        self._link, self._number = link, number

    def __getattr__(self, name: str) -> Any:
        return self._link.value(self._link.ask("attribute", self._number, name))

    def __call__(self, *positional: Any, **named: Any) -> Any:
        """Call it in the solution, and apply the changes that it made to its arguments in place."""
        sent = [self._link.encode(list(positional)), self._link.encode(named)]
        reply = self._link.ask("call", self._number, sent)
        for own, after in zip(positional, self._link.value(reply, "after"), strict=False):
            _copy_contents(own, after)
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
        except AttributeError as error:  # as Python raises for an object without a length
            raise TypeError(str(error)) from None


def _copy_contents(own: Any, after: Any) -> None:
    """Copy the contents that the solution left in an argument."""
    if type(own) is list and type(after) is list:
        own[:] = after
    elif type(own) in (dict, set) and type(after) is type(own):
        own.clear()
        own.update(after)


class SolutionNames:
    """The name ``solution`` in the tests: ``solution.NAME`` also reaches names that hide a
    built-in."""

    def __init__(self, link: SolutionLink):
        self._link = link

    def __getattr__(self, name: str) -> Any:
        return self._link.value(self._link.ask("name", name))


def judge_solution(link: SolutionLink, tests: str | None) -> tuple[str, str]:
    """Run the tests (None: only wait for the code); return a verdict, and a line that says why.

    "gone" stands for an end that only the process's exit status can explain.
    """
    try:
        offered = link.hear().get("names", ())
        if tests is not None:
            _run_tests(link, tests, set(map(str, offered)))
    except MemoryError:
        return "oom", "out of memory"
    except SolutionGone as error:
        return "gone", str(error)
    except AssertionError as error:
        return "fail", _failed_line(error, tests or "")
    except BaseException as error:  # whatever the tests or the solution raise is not a pass
        return "error", f"{type(error).__name__}: {error}"
    return "pass", ""


def _run_tests(link: SolutionLink, tests: str, offered: set[str]) -> None:
    program = compile(tests, "<tests>", "exec")
    names: dict[str, Any] = {"__name__": "tests", "solution": SolutionNames(link)}
    for name in offered.intersection(_used_names(program)) - set(dir(builtins)) - set(names):
        names[name] = getattr(names["solution"], name)
    exec(program, names)


def _used_names(program: Any) -> set[str]:
    """Return every name that a program, or a function in it, uses."""
    inner = (each for each in program.co_consts if hasattr(each, "co_names"))
    return set(program.co_names).union(*map(_used_names, inner))


def _failed_line(error: BaseException, tests: str) -> str:
    """Return the line of the tests that failed."""
    trace, number = error.__traceback__, 0
    while trace is not None:
        inside = trace.tb_frame.f_code.co_filename == "<tests>"
        number, trace = trace.tb_lineno if inside else number, trace.tb_next
    lines = tests.splitlines()
    return f"line {number}: {lines[number - 1].strip()}" if 0 < number <= len(lines) else str(error)
