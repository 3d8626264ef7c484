"""Compare mathematical answers, in a process that is killed and replaced when it takes too long.

Expressions are read by ``latex2sympy2_extended``, the reader of the package ``math_verify``.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable

from sterling.language.adapters.answer_comparison import compare_plain
from sterling.language.adapters.answer_worker import Worker, WorkerFault
from sterling.language.task import MALFORMED, NO_ANSWER, RIGHT, WRONG, Verdict, fault_verdict
from sterling.system.mistake import Mistake
from sterling.system.shown_values import shown_value

SECONDS = 5.0
MEMORY = 4 * 2**30  # bytes: stops a tower of powers before it takes the machine's memory
MAX_CHARACTERS = 2_000  # of an answer
_VERDICTS = {"right": RIGHT, "wrong": WRONG, "malformed": MALFORMED}


def compare_answers(answer: str, truth: str, prompt: str = "", algebra: bool = False) -> Verdict:
    r"""Judge whether two answers mean the same: ``1/2``, ``0.5`` and ``\frac{1}{2}``; ``(1,2)``.

    Both are read as LaTeX, with or without dollars, ``\boxed{}``, markdown, "The answer is" or a
    full stop. Exact values are compared exactly. If either side is a decimal, they may differ by
    half a unit of the truth's last written digit, at most by 1e-4 relative. Units must agree if
    both sides have one; 50\% is 0.5, not 50. Dates, times, versions, telephone numbers, numbers in
    a base (``101_2``), words and names are compared as text; so are letters without operator, digit
    or LaTeX command, unless the task declares ``algebra``.

    If the truth is a number, the answer must be a number that is written out, not something that
    computes to it: ``12*7+3`` is not 87. Nor does an answer count that is a part of the ``prompt``,
    unless it is the truth's own text, a name, a letter, or a number with nothing left to compute
    (``1/2``, not ``6/8``).
    The verdict is "malformed" if the answer cannot be read or is over 2,000 characters long,
    "timeout" if a comparison takes more than 5 seconds, "oom" if it ends its process, "verifier
    raised" if the package fails. Works in any thread. Raises Mistake if the package is not
    installed or the *truth* cannot be read.
    """
    require_package()
    if not answer.strip():
        return NO_ANSWER
    if len(answer) > MAX_CHARACTERS:
        return MALFORMED
    try:
        outcome = _worker().ask([answer, truth, prompt, "algebra" if algebra else ""], SECONDS)
    except WorkerFault as fault:
        return fault_verdict(fault.kind, fault.detail)
    if outcome == "no truth":
        raise Mistake(
            f"the answer {shown_value(truth)} cannot be read as mathematics; correct it, or remove "
            ":math to compare answers as text"
        )
    return _VERDICTS[outcome]


def require_package() -> None:
    """Raise Mistake if the package is not installed."""
    if importlib.util.find_spec("math_verify") is None:
        raise Mistake(
            'comparing mathematics needs more packages: pip install "sterling-rl[reasoning]"'
        )


@functools.cache
def _worker() -> Worker:
    return Worker(f"{__name__}:make_answerer", None, SECONDS, MEMORY)


def make_answerer(_: None) -> Callable[[list[str]], str]:
    """Return the function that compares ``[answer, truth, prompt, "algebra" or ""]``; called in the
    worker's process."""
    compare_plain(r"\frac{x}{2}", "0.5x", "", algebra=False)  # load everything before a verdict

    def compare(question: list[str]) -> str:
        answer, truth, prompt, *kind = question
        return compare_plain(answer, truth, prompt, algebra="algebra" in kind)

    return compare
