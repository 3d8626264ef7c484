"""Small functions, judged by hidden tests in a sandbox."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from sterling.language.sandbox import Limits, run_code
from sterling.language.task import MALFORMED, Task, Verdict, code_answer
from sterling.language.tasks.puzzle import Puzzle

EXAMPLES, TESTS = 2, 8
DRAWN = 200  # arguments that are looked at for those that tell a wrong function from the right one
LIMITS = Limits(seconds=3.0)
DEFINES = re.compile(r"\bdef\s+f\s*\(|^f\s*=", re.MULTILINE)
REWARDS = {"pass": Verdict(1.0, "right"), "fail": Verdict(0.0, "wrong")}


class _Step(NamedTuple):
    """One step of what the function does: in words, as code of ``v``, and as a function; and
    functions that are nearly it."""

    words: str
    code: str
    do: Callable[[Any], Any]
    nearly: tuple[Callable[[Any], Any], ...] = ()


class _Made(NamedTuple):
    """What ``f`` does in words, its code, itself, functions that miss a part of it; how arguments
    are drawn, and how those that tell these functions apart."""

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
    :func:`sterling.language.sandbox.run_code`; ``limits`` are three seconds and its defaults.
    Tests are drawn until functions that are nearly right fail one of them (without one of the
    steps, with ``>=`` for ``>``, a threshold that is one off), wherever any argument tells.
    Reasons: those of the sandbox, "refused" (reward 0) where none can be built, and "malformed"
    (nothing runs) where no ``f`` is defined.

    Levels: 0 one or 1 two steps of arithmetic; 2 a selection of a list reduced to a number; 3 the
    same of changed numbers; 4 three changes of a text; 5 a recurrence. Prompt 33-44, 46-62,
    67-126, 85-147, 83-168, 63-73 characters; answer 22-23, 26-28, 43-56, 58-71, 31-59, 52.
    """

    name = "program"
    levels = range(6)

    def __init__(self, limits: Limits = LIMITS):
        self.limits = limits

    def pose(self, random: Random, level: int) -> tuple[str, dict[str, str]]:
        """What ``f`` does, two examples; a solution and hidden tests."""
        made = _made(random, level)
        inputs = [made.make(random) for _ in range(EXAMPLES)]
        shown = " ".join(f"f({each!r})={made.do(each)!r}" for each in inputs)
        tests = [f"got = f({each!r})\n{_test(made.do(each))}" for each in _arguments(random, made)]
        solution = {"solution": made.code, "tests": "".join(tests)}
        return f"write f(v): {made.words}. {shown}", solution

    def judge(self, task: Task, answer: str) -> Verdict:
        """Run the code with its tests in a sandbox."""
        if not DEFINES.search(answer) or "\0" in answer or _lone(answer):
            return MALFORMED
        outcome = run_code(answer, task.answer["tests"], self.limits)
        return REWARDS.get(outcome.verdict) or Verdict(0.0, outcome.verdict)

    def extract(self, response: str) -> str:
        """The code, out of its fences."""
        return code_answer(response)

    def solve(self, task: Task) -> str:
        """The function that the tests were made with."""
        return str(task.answer["solution"])


def _test(wanted: Any) -> str:
    """An object that claims to equal anything does not pass."""
    return f"assert type(got) is {type(wanted).__name__} and got == {wanted!r}\n"


def _lone(text: str) -> bool:
    """Whether it holds half a character, which no file can."""
    return any("\ud800" <= each <= "\udfff" for each in text)


def _arguments(random: Random, made: _Made) -> list[Any]:
    """Arguments of the tests: first those that tell wrong functions from the right one."""
    found: list[Any] = []
    left = made.wrong
    for _ in range(DRAWN):
        if not left or len(found) == TESTS:
            break
        each = made.make_near(random)
        same = [wrong for wrong in left if _same(wrong(each), made.do(each))]
        found += [each] if len(same) < len(left) else []
        left = same
    return found + [made.make(random) for _ in range(TESTS - len(found))]


def _same(found: Any, wanted: Any) -> bool:
    return type(found) is type(wanted) and bool(found == wanted)


def _made(random: Random, level: int) -> _Made:
    if level == 5:
        return _recurrence(random)
    make: Callable[[Random], Any]
    near: Callable[[Random], Any]
    if level == 4:
        steps, make, near = random.sample(_text_steps(random), 3), _text, _text
    elif level >= 2:
        steps, at = _list_steps(random, change=level == 3)
        make, near = _list, functools.partial(_near_list, at)
    else:
        steps = [_number_step(random) for _ in range(level + 1)]
        make, near = _number, _number
    code = "v"
    for step in steps:
        code = step.code.replace("@", code)
    words = ", then ".join(step.words for step in steps)
    does = [step.do for step in steps]
    wrong = [
        _chain([*does[:place], other, *does[place + 1 :]])
        for place, step in enumerate(steps)
        for other in (lambda v: v, *step.nearly)
    ]
    return _Made(words, f"def f(v): return {code}", _chain(does), wrong, make, near)


def _chain(steps: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
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
    """The steps, and the number that their selection asks about."""
    by, over = random.randint(2, 9), random.randint(-5, 20)
    keep = [
        _Step("take the even ones of v", "[x for x in @ if x%2==0]", _kept(lambda x: x % 2 == 0)),
        _Step("take the odd ones of v", "[x for x in @ if x%2]", _kept(lambda x: x % 2 == 1)),
        _Step(
            f"take those of v over {over}",
            f"[x for x in @ if x>{over}]",
            _kept(over.__lt__),
            (_kept(over.__le__), _kept((over + 1).__lt__)),
        ),
        _Step(
            "take those of v below 0",
            "[x for x in @ if x<0]",
            _kept(lambda x: x < 0),
            (_kept(lambda x: x <= 0), _kept(lambda x: x < -1)),
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


def _kept(wanted: Callable[[int], bool]) -> Callable[[list[int]], list[int]]:
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


def _recurrence(random: Random) -> _Made:
    start, by, plus = random.randint(0, 5), random.randint(2, 3), random.randint(1, 5)

    def do(count: int) -> int:
        value = start
        for _ in range(count):
            value = by * value + plus
        return value

    words = f"a(0)={start}, a(n)={by}*a(n-1)+{plus}; return a(v)"
    code = f"def f(v):\n a={start}\n for _ in range(v): a={by}*a+{plus}\n return a"
    wrong = [lambda count: do(count + 1), lambda count: do(max(count - 1, 0))]
    return _Made(words, code, do, wrong, _count, _count)


def _count(random: Random) -> int:
    return random.randint(0, 9)


def _number(random: Random) -> int:
    return random.randint(-20, 20)


def _list(random: Random) -> list[int]:
    return [random.randint(-20, 30) for _ in range(random.randint(0, 6))]


def _near_list(at: int, random: Random) -> list[int]:
    """A list around a number, in which others are below it, above it, or anywhere."""
    found = random.sample((at - 1, at, at + 1), random.randint(1, 3))
    low, high = random.choice([(-20, at - 1), (at + 1, 30), (-20, 30)])
    found += [random.randint(low, high) for _ in range(random.randint(0, 3))]
    random.shuffle(found)
    return found


def _text(random: Random) -> str:
    return "".join(random.choices("abcde", k=random.randint(1, 8)))
