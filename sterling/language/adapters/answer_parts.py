r"""Take an answer apart: the parts of ``(1,2)``, ``[0,1)``, ``\{1,2\}``, ``1, 2``, matrices and
unions, and what stands left and right of an equation."""

from __future__ import annotations

import dataclasses
import re

_SEPARATOR = re.compile(r"\s*(?:[,;]|(?<=[\s\d}])(?:,\s*)?(?:and|or)(?=[\s\\-]))\s*")
_OUTSIDE_NUMBERS = re.compile(rf"(?!(?<=\d),\d{{3}}(?!\d)){_SEPARATOR.pattern}")  # not of 1,000
_CUP = re.compile(r"\s*\\cup(?![A-Za-z])\s*")
_MATRIX = re.compile(
    r"\\begin\{(?P<name>[bpBvV]?(?:small)?matrix|array)\}(?P<columns>\{[lcr| ]*\})?(?P<body>.*)"
    r"\\end\{(?P=name)\}",
    re.DOTALL,
)
_RELATION = re.compile(r"=|≈|\\(?:approx|in|equiv)(?![A-Za-z])")
_NAME = re.compile(
    r"(?:[A-Za-z]{1,12}|\\[A-Za-z]+)(?:_\{?\w+\}?)?'*(?:\([A-Za-z, ]+\))?|\([A-Za-z, ]+\)"
)
_LESS = re.compile(r"\s*(<|>|\\le(?![A-Za-z])|\\ge(?![A-Za-z]))\s*")
_BRACKETS = {("(", ")"), ("[", "]"), ("(", "]"), ("[", ")"), ("\\{", "\\}"), ("{", "}")}
_SET = ("{", "}")
_LIST = ("", "")
_UNION = ("\\cup", "")
_ROW = ("[", "]")


@dataclasses.dataclass(frozen=True)
class Parts:
    """The parts of an answer; ``brackets`` say of what: round, square, braces (a set), two empty
    texts (a list), or a matrix's kind and number of columns."""

    brackets: tuple[str, str]
    parts: tuple[str, ...]
    is_ordered: bool

    def agrees_in_kind(self, other: Parts) -> bool:
        """Whether the brackets agree: a list may stand for a set, or a set for a list."""
        kinds = {self.brackets, other.brackets}
        return len(self.parts) == len(other.parts) and (len(kinds) == 1 or kinds == {_SET, _LIST})


def take_apart(text: str) -> Parts | None:
    """Return the parts of a text (plain LaTeX); None if it is one expression."""
    matrix = _MATRIX.fullmatch(text)
    if matrix is not None:
        return _matrix(matrix)
    union = _split(text, _CUP)
    if len(union) > 1:
        return Parts(_UNION, tuple(union), is_ordered=False)
    for before, after in _BRACKETS:
        if _encloses(text, before, after):
            inside = text[len(before) : len(text) - len(after)]
            separator = _OUTSIDE_NUMBERS if ", " in inside else _SEPARATOR
            return _bracketed(before.strip("\\"), after.strip("\\"), _split(inside, separator))
    parts = _with_both_signs(_split(text, _OUTSIDE_NUMBERS))
    return Parts(_LIST, tuple(parts), is_ordered=False) if len(parts) > 1 else None


def has_relation(text: str) -> bool:
    """Whether the text is an equation or names a set that something is in."""
    return _RELATION.search(text) is not None


def left_and_right(text: str) -> tuple[str, str]:
    """Return the name that an answer begins with (``x`` of ``x=42``; "" without one) and what
    stands after the last sign of equality: ``42`` of ``6*7=42``."""
    sides = _RELATION.split(text)
    name = sides[0].strip()
    is_name = len(sides) > 1 and _NAME.fullmatch(name)
    return (re.sub(r"\s", "", name) if is_name else "", sides[-1].strip())


def as_union(parts: Parts) -> Parts:
    r"""Return ``x<1 \text{ or } x>2``, a list of inequalities, as a union of intervals; others as
    they are."""
    found = [interval_of(part) for part in parts.parts]
    intervals = [each[1] for each in found if each is not None]
    one_name = len({each[0] for each in found if each is not None}) == 1
    if parts.brackets != _LIST or len(intervals) < len(found) or not one_name:
        return parts
    return Parts(_UNION, tuple(intervals), is_ordered=False)


def interval_of(text: str) -> tuple[str, str] | None:
    r"""Return the variable and the interval of an inequality: ``x`` and ``[1,2)`` of
    ``1\le x<2``; None for others."""
    pieces = _LESS.split(text)
    if len(pieces) == 3:
        pieces = _completed(pieces)
    if len(pieces) != 5:
        return None
    if ">" in pieces[1] or "ge" in pieces[1]:
        pieces = [
            re.sub(">|ge", _turned, piece) if n % 2 else piece for n, piece in enumerate(pieces)
        ]
        pieces.reverse()
    low, first, name, second, high = (piece.strip() for piece in pieces)
    if not _NAME.fullmatch(name) or {first, second} - {"<", "\\le"}:
        return None
    start = "(" if first == "<" or "infty" in low else "["
    return name, f"{start}{low},{high}{')' if second == '<' or 'infty' in high else ']'}"


def _turned(found: re.Match[str]) -> str:
    return "<" if found[0] == ">" else "le"


def _completed(pieces: list[str]) -> list[str]:
    """Return ``x<5`` as ``-\\infty<x<5``: low, sign, name, sign, high, or the other way round."""
    left, sign, right = pieces
    down = "<" in sign or "le" in sign
    low, high = ("-\\infty", "\\infty") if down else ("\\infty", "-\\infty")
    strict = "<" if down else ">"
    if _NAME.fullmatch(left.strip()) and not left.strip().startswith("\\infty"):
        return [low, strict, left, sign, right]
    return [left, sign, right, strict, high]


def _matrix(found: re.Match[str]) -> Parts:
    rows = [row for row in re.split(r"\\\\(?:\[\w+\])?", found["body"]) if row.strip()]
    cells = [[cell.strip() for cell in row.split("&")] for row in rows]
    determinant = found["name"].removesuffix("matrix").removesuffix("small").lower()
    kind = "determinant" if determinant == "v" else "matrix"
    return _matrix_of(cells, kind)


def _matrix_of(cells: list[list[str]], kind: str) -> Parts:
    shape = " ".join(str(len(row)) for row in cells)
    return Parts((kind, shape), tuple(cell for row in cells for cell in row), is_ordered=True)


def _bracketed(before: str, after: str, parts: list[str]) -> Parts | None:
    if (before, after) == _ROW and all(_encloses(part, *_ROW) for part in parts):
        rows = [_split(part[1:-1], _SEPARATOR) for part in parts]
        return _matrix_of(rows, "matrix")
    if (before, after) == _SET:
        return Parts(_SET, tuple(_with_both_signs(parts)), is_ordered=False)
    return Parts((before, after), tuple(parts), is_ordered=True) if len(parts) > 1 else None


def _with_both_signs(parts: list[str]) -> list[str]:
    """Return ``\\pm 2`` as ``+ 2`` and ``- 2``."""
    sign = re.compile(r"\\pm(?![A-Za-z])")
    both = ([sign.sub("+", part), sign.sub("-", part)] for part in parts if sign.search(part))
    return [part for part in parts if not sign.search(part)] + [
        part for pair in both for part in pair
    ]


def _encloses(text: str, before: str, after: str) -> bool:
    """Whether the text is enclosed in a pair of brackets that belong together."""
    if not (text.startswith(before) and text.endswith(after)) or len(text) <= len(before + after):
        return False
    if before == "{" and text.endswith("\\}"):
        return False
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0:
            return place == len(text) - 1 or (place == 0 and before == "\\{")
    return False


def _split(text: str, separator: re.Pattern[str]) -> list[str]:
    """Split a text at separators outside of brackets and outside of numbers such as ``1,000``."""
    parts, depth, start, place = [], 0, 0, 0
    while place < len(text):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        found = separator.match(text, place) if depth == 0 else None
        if found is None or found.end() == found.start():
            place += 1
            continue
        parts.append(text[start : found.start()].strip())
        start = place = found.end()
    return [*parts, text[start:].strip()]
