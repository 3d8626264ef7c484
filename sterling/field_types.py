"""The types of a Config's fields: what a number may be is said where the field is declared.

    gamma: Share = 0.99  # discount per step
    cost: Annotated[float, Within(0.0, 25.0)] = 5.0  # limit per episode

A comment beside the field is its help, with the unit. A plain ``float`` or ``int`` may be any
number but NaN. This file imports nothing slow: the command line reads the same words in the source.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated

MOST_LAYERS = 1_000  # each is traced by itself: more take hours before anything is learned


@dataclass(frozen=True)
class Within:
    """A range of numbers. The ends belong to it unless ``above`` (the low one) or ``below`` (the
    high one) say otherwise; with ``endless`` infinity does as well."""

    low: float | int = -math.inf
    high: float | int = math.inf
    above: bool = False
    below: bool = False
    endless: bool = False

    def unmet(self, value: float) -> str:
        """Return what a number must be, where ``value`` is not; else nothing."""
        if math.isnan(value) or (math.isinf(value) and not self.endless):
            return "a finite number"
        high_enough = value > self.low if self.above else value >= self.low
        low_enough = value < self.high if self.below else value <= self.high
        return "" if high_enough and low_enough else self._words(low_enough)

    def _words(self, low_enough: bool) -> str:
        least = f"above {self.low:g}" if self.above else f"at least {self.low:g}"
        most = f"below {self.high:g}" if self.below else f"at most {self.high:,g}"
        if math.isinf(self.high):
            return "0 or more" if self.low == 0 and not self.above else least
        if self.above or self.below:
            return f"{least} and {most}"
        if self.high == 1:
            return f"between {self.low:g} and 1"
        return least if low_enough else most


@dataclass(frozen=True)
class OneOf:
    """Words of which a field is one."""

    words: tuple[str, ...]


Count = Annotated[int, Within(1)]
Whole = Annotated[int, Within(0)]
Layers = Annotated[int, Within(1, MOST_LAYERS)]
Depth = Annotated[int, Within(0, MOST_LAYERS)]  # 0: linear
Number = Annotated[float, Within(endless=True)]
Finite = Annotated[float, Within()]
Positive = Annotated[float, Within(0, above=True)]
NotNegative = Annotated[float, Within(0)]
Share = Annotated[float, Within(0, 1)]
Part = Annotated[float, Within(0, 1, above=True)]
Inside = Annotated[float, Within(0, 1, above=True, below=True)]  # neither 0 nor 1
Limit = Annotated[float, Within(0, above=True, endless=True)]  # infinite: none
Width = Annotated[float, Within(0, endless=True)]  # of an interval; infinite: all numbers
Activation = Annotated[str, OneOf(("tanh", "relu", "silu", "elu", "gelu"))]

KINDS = {
    **dict.fromkeys(("Count", "Whole", "Layers", "Depth"), "int"),
    **dict.fromkeys(("Finite", "Positive", "NotNegative", "Share", "Part"), "float"),
    **dict.fromkeys(("Inside", "Limit", "Width", "Number"), "float"),
    "Activation": "str",
}
_ANNOTATED = re.compile(r"(?:\w+\.)*Annotated\[\s*(\w+)\s*,.*\]", re.DOTALL)


def plain(kind: str) -> str:
    """Return the type behind a field's annotation as it is written: "Share | None" as "float |
    None", "Annotated[int, Within(1)]" as "int"; any other text as it is."""
    optional = " | None" if kind.endswith(" | None") else ""
    kind = kind.removesuffix(" | None")
    if found := _ANNOTATED.fullmatch(kind):
        kind = found.group(1)
    return KINDS.get(kind.rpartition(".")[2], kind) + optional
