"""Programming tasks: small functions, judged by hidden tests in a sandbox."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from sterling.language.sandbox import Limits, run_code
from sterling.language.task import MALFORMED, Task, Verdict, code_answer, has_half_character
from sterling.language.tasks.task_checks import Puzzle

EXAMPLES, TESTS = 2, 8
MAX_DRAWS = 200  # arguments drawn in search of those that expose a wrong function
LIMITS = Limits(seconds=3.0)
DEFINES_F = re.compile(r"\bdef\s+f\s*\(|^f\s*=", re.MULTILINE)
REWARDS = {"pass": Verdict(1.0, "right"), "fail": Verdict(0.0, "wrong")}


class _Step(NamedTuple):
    """One step of the function ``f``: in words, as code with ``@`` for its input, as a function,
    and functions that are nearly the same."""

    words: str
    code: str
    do: Callable[[Any], Any]
    nearly: tuple[Callable[[Any], Any], ...] = ()


class _Function(NamedTuple):
    """A function ``f``: in words, as code, as a function, and functions that miss a part of it; how
    to draw arguments, and how to draw those that expose the latter."""

    words: str
    code: str
    do: Callable[[Any], Any]
    wrong: list[Callable[[Any], Any]]
    make: Callable[[Random], Any]
    make_near: Callable[[Random], Any]


class Program(Puzzle):
    """A function ``f`` with examples: ``write f(v): v plus 3, then times 2. f(1)=8 f(0)=6`` ->
    ``def f(v): return (v+3)*2``.

    The answer is Python that defines ``f``, in a fenced block or not. It runs in a sandbox against
    eight hidden tests, all of which it has to pass; a value of another type than asked fails. See
    :func:`sterling.language.sandbox.run_code`; ``limits`` are its defaults, with three seconds.
    Tests are drawn until functions that are nearly right fail one of them (without one of the
    steps, with ``>=`` for ``>``, a threshold that is one off), if any argument exposes these.
    Reasons: those of the sandbox, "refused" (reward 0) if none can be built, and "malformed"
    (nothing runs) if no ``f`` is defined.

    Levels: 0 one or 1 two steps of arithmetic; 2 a selection of a list reduced to a number; 3 the
    same of changed numbers; 4 three changes of a text; 5 a recurrence. Prompt 33-44, 46-62,
    67-126, 85-147, 83-168, 63-73 characters; answer 22-23, 26-28, 43-56, 58-71, 31-59, 52.
    """

    name = "program"
    levels = range(6)

    def __init__(self, limits: Limits = LIMITS):
        self.limits = limits

    def pose(self, random: Random, level: int) -> tuple[str, dict[str, str]]:
        """Return what ``f`` does with two examples, and a solution with hidden tests."""
        made = _make_function(random, level)
        inputs = [made.make(random) for _ in range(EXAMPLES)]
        shown = " ".join(f"f({each!r})={made.do(each)!r}" for each in inputs)
        tests = [
            f"got = f({each!r})\n{_test_code(made.do(each))}"
            for each in _test_arguments(random, made)
        ]
        solution = {"solution": made.code, "tests": "".join(tests)}
        return f"write f(v): {made.words}. {shown}", solution

    def judge(self, task: Task, answer: str) -> Verdict:
        """Run the code with its tests in a sandbox."""
        if not DEFINES_F.search(answer) or "\0" in answer or has_half_character(answer):
            return MALFORMED
        outcome = run_code(answer, task.answer["tests"], self.limits)
        return REWARDS.get(outcome.verdict) or Verdict(0.0, outcome.verdict)

    def extract(self, response: str) -> str:
        """Return the code without its fences."""
        return code_answer(response)

    def solve(self, task: Task) -> str:
        """Return the function that the tests were made with."""
        return str(task.answer["solution"])


def _test_code(wanted: Any) -> str:
    """Return the code of one test. It compares types, so an object that claims to equal anything
    fails."""
    return f"assert type(got) is {type(wanted).__name__} and got == {wanted!r}\n"


def _test_arguments(random: Random, made: _Function) -> list[Any]:
    """Return the arguments of the tests: first those that expose wrong functions."""
    found: list[Any] = []
    left = made.wrong
    for _ in range(MAX_DRAWS):
        if not left or len(found) == TESTS:
            break
        each = made.make_near(random)
        same = [wrong for wrong in left if _same_value(wrong(each), made.do(each))]
        found += [each] if len(same) < len(left) else []
        left = same
    return found + [made.make(random) for _ in range(TESTS - len(found))]


def _same_value(found: Any, wanted: Any) -> bool:
    return type(found) is type(wanted) and bool(found == wanted)


def _make_function(random: Random, level: int) -> _Function:
    if level == 5:
        return _make_recurrence(random)
    make: Callable[[Random], Any]
    near: Callable[[Random], Any]
    if level == 4:
        steps, make, near = random.sample(_text_steps(random), 3), _random_text, _random_text
    elif level >= 2:
        steps, at = _list_steps(random, change=level == 3)
        make, near = _random_list, functools.partial(_random_list_near, at)
    else:
        steps = [_number_step(random) for _ in range(level + 1)]
        make, near = _random_number, _random_number
    code = "v"
    for step in steps:
        code = step.code.replace("@", code)
    words = ", then ".join(step.words for step in steps)
    does = [step.do for step in steps]
    wrong = [
        _compose([*does[:place], other, *does[place + 1 :]])
        for place, step in enumerate(steps)
        for other in (lambda v: v, *step.nearly)
    ]
    return _Function(words, f"def f(v): return {code}", _compose(does), wrong, make, near)


def _compose(steps: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    return lambda value: functools.reduce(lambda found, step: step(found), steps, value)


def _number_step(random: Random) -> _Step:
    by = random.randint(2, 9)
    return random.choice(
        [
            _Step(f"plus {by}", f"(@+{by})", lambda v: v + by),
            _Step(f"minus {by}", f"(@-{by})", lambda v: v - by),
            _Step(f"times {by}", f"(@*{by})", lambda v: v * by),
            _Step(f"modulo {by}", f"(@%{by})", lambda v: v % by),
            _Step("squared", "(@**2)", lambda v: v**2),
        ]
    )


def _list_steps(random: Random, change: bool) -> tuple[list[_Step], int]:
    """Return the steps, and the number that their selection compares with."""
    by, over = random.randint(2, 9), random.randint(-5, 20)
    keep = [
        _Step(
            "take the even ones of v", "[x for x in @ if x%2==0]", _keep_where(lambda x: x % 2 == 0)
        ),
        _Step("take the odd ones of v", "[x for x in @ if x%2]", _keep_where(lambda x: x % 2 == 1)),
        _Step(
            f"take those of v over {over}",
            f"[x for x in @ if x>{over}]",
            _keep_where(over.__lt__),
            (_keep_where(over.__le__), _keep_where((over + 1).__lt__)),
        ),
        _Step(
            "take those of v below 0",
            "[x for x in @ if x<0]",
            _keep_where(lambda x: x < 0),
            (_keep_where(lambda x: x <= 0), _keep_where(lambda x: x < -1)),
        ),
    ]
    changes = [
        _Step(f"each times {by}", f"[x*{by} for x in @]", lambda v: [x * by for x in v]),
        _Step(f"each plus {by}", f"[x+{by} for x in @]", lambda v: [x + by for x in v]),
        _Step("each squared", "[x*x for x in @]", lambda v: [x * x for x in v]),
    ]
    reduce = [
        _Step("their sum", "sum(@)", sum),
        _Step("their count", "len(@)", len),
        _Step("the largest or 0", "max(@,default=0)", lambda v: max(v, default=0)),
        _Step("the smallest or 0", "min(@,default=0)", lambda v: min(v, default=0)),
    ]
    middle = [random.choice(changes)] if change else []
    kept = random.choice(keep)
    return [kept, *middle, random.choice(reduce)], over if kept is keep[2] else 0


def _keep_where(wanted: Callable[[int], bool]) -> Callable[[list[int]], list[int]]:
    return lambda v: [x for x in v if wanted(x)]


def _text_steps(random: Random) -> list[_Step]:
    by, letter = random.randint(2, 4), random.choice("abc")
    return [
        _Step("backwards", "@[::-1]", lambda v: v[::-1]),
        _Step("in upper case", "@.upper()", lambda v: v.upper()),
        _Step(f"repeated {by} times", f"(@*{by})", lambda v: v * by),
        _Step(
            f"without any {letter}", f"@.replace('{letter}','')", lambda v: v.replace(letter, "")
        ),
        _Step(f"the first {by} letters", f"@[:{by}]", lambda v: v[:by]),
        _Step("letters sorted", "''.join(sorted(@))", lambda v: "".join(sorted(v))),
        _Step("every second letter from the first", "@[::2]", lambda v: v[::2]),
    ]


def _make_recurrence(random: Random) -> _Function:
    start, by, plus = random.randint(0, 5), random.randint(2, 3), random.randint(1, 5)

    def do(count: int) -> int:
        value = start
        for _ in range(count):
            value = by * value + plus
        return value

    words = f"a(0)={start}, a(n)={by}*a(n-1)+{plus}; return a(v)"
    code = f"def f(v):\n a={start}\n for _ in range(v): a={by}*a+{plus}\n return a"
    wrong = [lambda count: do(count + 1), lambda count: do(max(count - 1, 0))]
    return _Function(words, code, do, wrong, _random_count, _random_count)


def _random_count(random: Random) -> int:
    return random.randint(0, 9)


def _random_number(random: Random) -> int:
    return random.randint(-20, 20)


def _random_list(random: Random) -> list[int]:
    return [random.randint(-20, 30) for _ in range(random.randint(0, 6))]


def _random_list_near(at: int, random: Random) -> list[int]:
    """Return a list with numbers near ``at``, and others that are below it, above it, or
    anywhere."""
    found = random.sample((at - 1, at, at + 1), random.randint(1, 3))
    low, high = random.choice([(-20, at - 1), (at + 1, 30), (-20, 30)])
    found += [random.randint(low, high) for _ in range(random.randint(0, 3))]
    random.shuffle(found)
    return found


def _random_text(random: Random) -> str:
    return "".join(random.choices("abcde", k=random.randint(1, 8)))
