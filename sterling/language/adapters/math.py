"""Mathematical answers, compared by the ``math_verify`` package.

That package's own time limits use signals, which only work in a main thread. They are off here;
comparisons run in a process that is ended and replaced when it takes too long.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import re
from collections.abc import Callable
from typing import Any

from sterling.language.adapters.worker import Fault, Worker
from sterling.language.task import MALFORMED, NOTHING, RIGHT, WRONG, Verdict
from sterling.types import Mistake

SECONDS = 5.0
MEMORY = 4 * 2**30  # bytes: a tower of powers ends here, and not with the machine
LONGEST = 2_000  # characters of an answer
STOP = re.compile(r"(?<!\\)[.,;:]+([}$\s]*)$")  # what ends a sentence, not an expression
_VERDICTS = {"right": RIGHT, "wrong": WRONG, "malformed": MALFORMED}


def equivalent(answer: str, truth: str) -> Verdict:
    r"""Whether two answers mean the same: ``1/2``, ``0.5`` and ``\frac{1}{2}``; ``(1,2)``.

    Both are read as LaTeX (with or without dollars, ``\boxed{}`` or a full stop). "malformed" where
    the answer cannot be read or is over 2,000 characters long, "timeout" where a comparison takes
    more than 5 seconds, "oom" where it ends its process, "verifier raised" where the package fails.
    Works in any thread. Raises Mistake where the package is not installed or the *truth* cannot be
    read.
    """
    package()
    if not answer.strip():
        return NOTHING
    if len(answer) > LONGEST:
        return MALFORMED
    try:
        said = _worker().ask([answer, truth], SECONDS)
    except Fault as fault:
        reasons = {"hung": "timeout", "died": "oom"}
        return Verdict(0.0, reasons.get(fault.kind, "verifier raised"))
    if said == "no truth":
        raise Mistake(
            f"the answer {truth[:60]!r} cannot be read as mathematics; compare it as text"
        )
    return _VERDICTS[said]


def package() -> None:
    """Raise Mistake where the package is not installed."""
    if importlib.util.find_spec("math_verify") is None:
        raise Mistake(
            'comparing mathematics needs a package more: pip install "sterling-rl[reasoning]"'
        )


@functools.cache
def _worker() -> Worker:
    return Worker(f"{__name__}:answering", None, SECONDS, MEMORY)


def answering(_: None) -> Callable[[list[str]], str]:
    """In the worker: what compares ``[answer, truth]``."""
    verifier: Any = importlib.import_module("math_verify")
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    config = [verifier.LatexExtractionConfig()]  # not its plain reader, which evaluates Python

    @functools.lru_cache(maxsize=1_000)
    def read(text: str) -> list[Any]:
        text = STOP.sub(r"\1", text.strip())
        text = text if "\\boxed" in text else f"\\boxed{{{text.strip().strip('$')}}}"
        found: list[Any] = verifier.parse(text, config, "no_fallback", parsing_timeout=None)
        return found

    def compare(question: list[str]) -> str:
        answer, truth = question
        gold = read(truth)
        if not gold:
            return "no truth"
        found = read(answer)
        if not found:
            return "malformed"
        return "right" if verifier.verify(gold, found, timeout_seconds=None) else "wrong"

    return compare
