"""Compare mathematical answers by the ``math_verify`` package.

That package's own time limits use signals, which only work in a main thread. They are off here;
comparisons run in a process that is killed and replaced when it takes too long.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import re
from collections.abc import Callable
from typing import Any

from sterling.language.adapters import literal_answers
from sterling.language.adapters.answer_worker import Worker, WorkerFault
from sterling.language.task import (
    MALFORMED,
    NO_ANSWER,
    RIGHT,
    WRONG,
    Verdict,
    fault_verdict,
    final_answer,
)
from sterling.types import Mistake

SECONDS = 5.0
MEMORY = 4 * 2**30  # bytes: stops a tower of powers before it takes the machine's memory
MAX_CHARACTERS = 2_000  # of an answer
SENTENCE_END = re.compile(r"(?<!\\)[.,;:]+([}$\s]*)$")  # ends a sentence, not an expression
_VERDICTS = {"right": RIGHT, "wrong": WRONG, "malformed": MALFORMED}


def compare_answers(answer: str, truth: str, prompt: str = "") -> Verdict:
    r"""Judge whether two answers mean the same: ``1/2``, ``0.5`` and ``\frac{1}{2}``; ``(1,2)``.

    Both are read as LaTeX (with or without dollars, ``\boxed{}`` or a full stop). If the truth is a
    number, the answer must be a number that is written out, not something that computes to it:
    ``12*7+3`` is not 87. Nor does an answer count that is a part of the ``prompt``, unless it is
    the truth's own text, a letter, or a number with nothing left to compute (``1/2``, not ``6/8``).
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
        outcome = _worker().ask([answer, truth, prompt], SECONDS)
    except WorkerFault as fault:
        return fault_verdict(fault.kind, fault.detail)
    if outcome == "no truth":
        raise Mistake(
            f"the answer {truth[:60]!r} cannot be read as mathematics; correct it, or remove "
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
    """Return the function that compares ``[answer, truth, prompt]``; called in the worker's
    process."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    reader = _AnswerReader()
    reader.compare([r"\frac{1}{2}", "0.5", ""])  # load everything before the first verdict
    return reader.compare


class _AnswerReader:
    """Reads and compares answers; a truth that is the answer to many questions is read once."""

    def __init__(self) -> None:
        self.verifier: Any = importlib.import_module("math_verify")
        # not the package's plain reader, which evaluates Python
        self.config = [self.verifier.LatexExtractionConfig()]
        self.read = functools.lru_cache(maxsize=1_000)(self._read)

    def compare(self, question: list[str]) -> str:
        answer, truth, prompt = (SENTENCE_END.sub(r"\1", text.strip()) for text in question)
        gold = self.read(truth)
        if not gold:
            return "no truth"
        found = self.read(answer)
        if not found:
            return "malformed"
        right = self._same(gold, found) and self._is_own_answer(
            _without_box(answer), _without_box(truth), prompt
        )
        return "right" if right else "wrong"

    def _read(self, text: str) -> list[Any]:
        text = text if "\\boxed" in text else f"\\boxed{{{text.strip().strip('$')}}}"
        found: list[Any] = self.verifier.parse(
            text, self.config, "no_fallback", parsing_timeout=None
        )
        return found

    def _same(self, gold: list[Any], found: list[Any]) -> bool:
        return bool(self.verifier.verify(gold, found, timeout_seconds=None))

    def _is_own_answer(self, answer: str, truth: str, prompt: str) -> bool:
        """Whether an answer that equals the truth was given as an answer, and is not the
        question."""
        if literal_answers.same_text(answer, truth):
            return True
        copied = literal_answers.appears_in(answer, prompt)
        number, side = literal_answers.last_side(truth), literal_answers.last_side(answer)
        if literal_answers.is_written_number(number) and _is_number(self.read(number)):
            found = self.read(side)  # alone: an equation is compared by either of its sides
            right = (
                literal_answers.is_written_number(side)
                and _is_number(found)
                and self._same(self.read(truth), found)
            )
            return right and not (copied and literal_answers.is_unfinished(side))
        found, gold = self.read(answer)[0], self.read(truth)[0]
        idle = getattr(found, "is_Relational", False) and not found.free_symbols  # 5=5
        letter = getattr(found, "is_Symbol", False) or getattr(found, "is_NumberSymbol", False)
        return not (idle and found != gold) and (letter or not copied)


def _without_box(text: str) -> str:
    """Return the text without its box and dollars."""
    return (final_answer(text) if "\\boxed" in text else text).strip().strip("$").strip()


def _is_number(found: list[Any]) -> bool:
    """Whether what was read is only a number: a fraction, percents, a power of ten, in braces or
    not, or (``\\text{42}``) a word of digits."""
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
