"""Decide whether two answers mean the same: as text, numbers, parts or expressions, as the truth
is."""

from __future__ import annotations

import re
from typing import Any

from sterling.language.adapters import answer_parts, symbolic_answers, text_answers
from sterling.language.adapters.answer_layout import appears_in, plain_answer, same_text
from sterling.language.adapters.answer_parts import Parts, left_and_right, take_apart
from sterling.language.adapters.written_numbers import WrittenNumber, equal_numbers, read_number

_ROOT = re.compile(  # a multiple of a root or of pi: nothing is left to compute
    r"-?\d*\s*(?:\\sqrt\s*(?:\[\d+\])?\s*\{?\d+\}?|\\pi)(?:\s*/\s*\d+)?"
    r"|-?\d*\s*\\frac\s*\{\d*\s*(?:\\sqrt\s*(?:\[\d+\])?\s*\{?\d+\}?|\\pi)\s*\}\s*\{\d+\}"
)
_SUM = re.compile(r"[-+*/^<>]|\d\s*[A-Za-z]")
_SYMBOL = re.compile(r"[A-Za-z]|\\[A-Za-z]+")


class Comparison:
    """Compares answers to one question: its prompt matters, and whether it is ``algebra``."""

    def __init__(self, prompt: str, algebra: bool):
        self.prompt = prompt
        self.algebra = algebra

    def can_read(self, text: str) -> bool:
        """Whether a text (plain LaTeX) is something that can be compared."""
        if text_answers.text_key(text) or read_number(text) or self._is_words(text):
            return True
        parts = take_apart(text)
        if parts is not None:
            return all(map(self.can_read, parts.parts))
        if answer_parts.has_relation(text) and self.can_read(left_and_right(text)[1]):
            return True
        return symbolic_answers.read_expression(symbolic_answers.split_unit(text)[0]) is not None

    def is_right(self, truth: str, answer: str) -> bool:
        """Whether the answer means what the truth means, and is no copy of the question."""
        if same_text(truth, answer):
            return True
        return self.same(truth, answer) and self._is_own_answer(truth, answer)

    def same(self, truth: str, answer: str) -> bool:
        """Whether the answer means what the truth means."""
        if same_text(truth, answer):
            return True
        key = text_answers.text_key(truth)
        if key is not None:
            return key == text_answers.text_key(self._value(answer))
        number = read_number(truth)
        if number is not None:
            return self._same_number(number, self._value(answer))
        if self._is_words(truth):
            return text_answers.same_words(truth, self._value(answer))
        parts = take_apart(truth)
        if parts is not None:
            return self._same_parts(parts, answer)
        return self._same_relation(truth, answer)

    def _is_words(self, text: str) -> bool:
        return text_answers.is_words(text, self.algebra)

    def _value(self, text: str) -> str:
        """Return what an answer says that something is: ``42`` of ``x=42``, of ``6*7=42``, and of
        ``a+b=42`` if the question asks for ``a+b``; the whole text of other equations."""
        name, side = left_and_right(text)
        left = text[: len(text) - len(side)].strip().rstrip("=").strip()
        sum_of_letters = re.search("[A-Za-z]", left) and _SUM.search(left)
        return side if name or not sum_of_letters or appears_in(left, self.prompt) else text

    def _same_number(self, truth: WrittenNumber, answer: str) -> bool:
        found = read_number(answer)
        if text_answers.text_key(answer) is not None:
            return False  # 5 May
        if found is not None:
            return equal_numbers(truth, found)
        value = symbolic_answers.value_of(symbolic_answers.read_expression(answer))
        if value is None or not truth.is_decimal or not _ROOT.fullmatch(answer):
            return False
        return equal_numbers(truth, WrittenNumber(value, None, False, "", True))

    def _same_parts(self, truth: Parts, answer: str) -> bool:
        found = take_apart(answer) or take_apart(self._value(answer))
        if found is None:
            interval = answer_parts.interval_of(answer)
            found = take_apart(interval[1]) if interval is not None else None
        if found is None:
            return False
        truth, found = answer_parts.as_union(truth), answer_parts.as_union(found)
        if not truth.agrees_in_kind(found):
            return False
        is_list_of_words = truth.brackets == ("", "") and any(map(self._is_words, truth.parts))
        if truth.is_ordered or is_list_of_words:
            return all(map(self.same, truth.parts, found.parts))
        left = list(found.parts)
        for part in truth.parts:
            place = next((n for n, each in enumerate(left) if self.same(part, each)), None)
            if place is None:
                return False
            del left[place]
        return True

    def _same_relation(self, truth: str, answer: str) -> bool:
        """Compare equations and inequalities, and the values that ``x=42`` names."""
        interval, found = (answer_parts.interval_of(each) for each in (truth, answer))
        if interval is not None:
            if found is not None:
                return interval[0] == found[0] and self.same(interval[1], found[1])
            if take_apart(answer) is not None:
                return self.same(interval[1], answer)
        if not answer_parts.has_relation(truth):
            return self._same_expression(truth, self._value(answer))
        names = left_and_right(truth)[0], left_and_right(answer)[0]
        value, given = self._value(truth), self._value(answer)
        comparable = names[0] == names[1] or not names[1]
        if value != truth and comparable and not answer_parts.has_relation(given):
            return self.same(value, given)
        return self._same_expression(truth, answer)

    def _same_expression(self, truth: str, answer: str) -> bool:
        (truth, unit), (answer, given_unit) = map(symbolic_answers.split_unit, (truth, answer))
        if unit and given_unit and unit != given_unit:
            return False
        gold, number = symbolic_answers.read_expression(truth), read_number(answer)
        if number is not None:
            return symbolic_answers.is_same_value(gold, number.value, number.is_decimal)
        found: Any = symbolic_answers.read_expression(answer)
        return gold is not None and found is not None and symbolic_answers.is_same(gold, found)

    def _is_own_answer(self, truth: str, answer: str) -> bool:
        """Whether the answer is not only a part of the question, except for a name, a letter, or a
        number (if the truth is one) with nothing left to compute."""
        if not appears_in(answer, self.prompt):
            return True
        if text_answers.text_key(truth) or self._is_words(truth) or _SYMBOL.fullmatch(answer):
            return True
        found = read_number(self._value(answer))
        return bool(found and found.is_finished and read_number(self._value(truth)))


def compare_plain(answer: str, truth: str, prompt: str, algebra: bool) -> str:
    """Return "right", "wrong", "malformed" (an answer that cannot be read) or "no truth"."""
    comparison = Comparison(prompt, algebra)
    answer, truth = plain_answer(answer), plain_answer(truth)
    if not truth or not comparison.can_read(truth):
        return "no truth"
    if comparison.is_right(truth, answer):
        return "right"
    return "wrong" if comparison.can_read(answer) else "malformed"
