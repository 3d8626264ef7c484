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

from sterling.language.adapters import literal
from sterling.language.adapters.worker import Fault, Worker
from sterling.language.task import MALFORMED, NOTHING, RIGHT, WRONG, Verdict, final_answer, unjudged
from sterling.types import Mistake

SECONDS = 5.0
MEMORY = 4 * 2**30  # bytes: a tower of powers ends here, and not with the machine
LONGEST = 2_000  # characters of an answer
STOP = re.compile(r"(?<!\\)[.,;:]+([}$\s]*)$")  # what ends a sentence, not an expression
_VERDICTS = {"right": RIGHT, "wrong": WRONG, "malformed": MALFORMED}


def equivalent(answer: str, truth: str, prompt: str = "") -> Verdict:
    r"""Whether two answers mean the same: ``1/2``, ``0.5`` and ``\frac{1}{2}``; ``(1,2)``.

    Both are read as LaTeX (with or without dollars, ``\boxed{}`` or a full stop). Where the truth
    is a number the answer has to be one as it is written, not what computes to it: ``12*7+3`` is
    not 87. Nor does an answer count that stands in the ``prompt``, unless it is the truth's own
    text, a letter, or a number with nothing left to do (``1/2``, not ``6/8``). "malformed" where
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
        said = _worker().ask([answer, truth, prompt], SECONDS)
    except Fault as fault:
        return unjudged(fault.kind, fault.detail)
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
    """In the worker: what compares ``[answer, truth, prompt]``."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    reader = _Reader()
    reader.compare([r"\frac{1}{2}", "0.5", ""])  # what is loaded late must not cost a verdict
    return reader.compare


class _Reader:
    """Reads and compares; a truth that stands in many questions is read once."""

    def __init__(self) -> None:
        self.verifier: Any = importlib.import_module("math_verify")
        # not its plain reader, which evaluates Python
        self.config = [self.verifier.LatexExtractionConfig()]
        self.read = functools.lru_cache(maxsize=1_000)(self._read)

    def compare(self, question: list[str]) -> str:
        answer, truth, prompt = (STOP.sub(r"\1", text.strip()) for text in question)
        gold = self.read(truth)
        if not gold:
            return "no truth"
        found = self.read(answer)
        if not found:
            return "malformed"
        right = self._same(gold, found) and self._said(_bare(answer), _bare(truth), prompt)
        return "right" if right else "wrong"

    def _read(self, text: str) -> list[Any]:
        text = text if "\\boxed" in text else f"\\boxed{{{text.strip().strip('$')}}}"
        found: list[Any] = self.verifier.parse(
            text, self.config, "no_fallback", parsing_timeout=None
        )
        return found

    def _same(self, gold: list[Any], found: list[Any]) -> bool:
        return bool(self.verifier.verify(gold, found, timeout_seconds=None))

    def _said(self, answer: str, truth: str, prompt: str) -> bool:
        """Whether an answer that equals the truth is an answer, and not the question."""
        if literal.alike(answer, truth):
            return True
        copied = literal.stands_in(answer, prompt)
        number, side = literal.last_side(truth), literal.last_side(answer)
        if literal.written(number) and _numeric(self.read(number)):
            found = self.read(side)  # alone: an equation is compared by either of its sides
            right = (
                literal.written(side) and _numeric(found) and self._same(self.read(truth), found)
            )
            return right and not (copied and literal.undone(side))
        found, gold = self.read(answer)[0], self.read(truth)[0]
        idle = getattr(found, "is_Relational", False) and not found.free_symbols  # 5=5
        letter = getattr(found, "is_Symbol", False) or getattr(found, "is_NumberSymbol", False)
        return not (idle and found != gold) and (letter or not copied)


def _bare(text: str) -> str:
    """Without its box and dollars."""
    return (final_answer(text) if "\\boxed" in text else text).strip().strip("$").strip()


def _numeric(found: list[Any]) -> bool:
    """Whether what was read is nothing but a number: a fraction, percents, a power of ten, in
    braces or not, or (``\\text{42}``) a word of digits."""
    nodes = list(found[:1])
    while nodes:
        node = nodes.pop()
        kind, parts = type(node).__name__, list(getattr(node, "args", ()))
        power = kind == "Pow" and (parts[0] == 10 or parts[1] == -1) and parts[1].is_Integer
        digits = kind == "Symbol" and not re.search(r"[^\d.,]", node.name)
        known = power or digits or kind in ("Mul", "UnevaluatedExpr", "FiniteSet")
        if not known and not getattr(node, "is_Number", False):
            return False
        nodes += parts
    return bool(found)
