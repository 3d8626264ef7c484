"""The types of a Config's fields, which say which values a field may have.

    gamma: Share = 0.99  # discount per step
    cost: Annotated[float, Within(0.0, 25.0)] = 5.0  # limit per episode

The comment beside a field is its help text, with the unit. A plain ``float`` or ``int`` may be any
number but NaN. This file imports nothing slow: the command line reads these types in the source.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any

SIZES_TYPE = "int | tuple[int, ...]"  # the plain type of Sizes
MAX_LAYERS = 1_000  # each layer is traced separately: more would take hours to compile


@dataclass(frozen=True)
class Within:
    """A range of numbers, both ends included. ``above`` excludes the low end and ``below`` the
    high end; ``endless`` allows infinity."""

    low: float | int = -math.inf
    high: float | int = math.inf
    above: bool = False
    below: bool = False
    endless: bool = False

    def unmet_requirement(self, value: float) -> str:
        """Return the requirement that ``value`` violates, in words; "" if it violates none."""
        if math.isnan(value) or (math.isinf(value) and not self.endless):
            return "a finite number"
        high_enough = value > self.low if self.above else value >= self.low
        low_enough = value < self.high if self.below else value <= self.high
        return "" if high_enough and low_enough else self._describe_range(low_enough)

    def _describe_range(self, low_enough: bool) -> str:
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
class LayerSizes:
    """The units of hidden layers: one whole number for all, or a list with one for each layer; or
    other whole numbers of which there may be one or several."""

    least: int = 1

    def unmet_requirement(self, value: Any) -> str:
        """Return the requirement that ``value`` violates, in words; "" if it violates none."""
        sizes = value if isinstance(value, tuple) else (value,)
        whole = all(isinstance(size, int) and not isinstance(size, bool) for size in sizes)
        if whole and 0 < len(sizes) <= MAX_LAYERS and min(sizes) >= self.least:
            return ""
        return f"a whole number of at least {self.least}, or a list of them such as 400,300"


@dataclass(frozen=True)
class OneOf:
    """The words that a text field may be."""

    words: tuple[str, ...]


Count = Annotated[int, Within(1)]
Whole = Annotated[int, Within(0)]
AtLeastTwo = Annotated[int, Within(2)]
Layers = Annotated[int, Within(1, MAX_LAYERS)]
Depth = Annotated[int, Within(0, MAX_LAYERS)]  # 0: linear
Sizes = Annotated[int | tuple[int, ...], LayerSizes()]  # 256, or for each layer 400,300
Steps = Annotated[int | tuple[int, ...], LayerSizes(0)]  # 50000, or several: 15001,50001
Number = Annotated[float, Within(endless=True)]
Finite = Annotated[float, Within()]
Positive = Annotated[float, Within(0, above=True)]
NotNegative = Annotated[float, Within(0)]
Share = Annotated[float, Within(0, 1)]
ShareBelowOne = Annotated[float, Within(0, 1, below=True)]
Part = Annotated[float, Within(0, 1, above=True)]
Inside = Annotated[float, Within(0, 1, above=True, below=True)]  # neither 0 nor 1
Limit = Annotated[float, Within(0, above=True, endless=True)]  # infinite: no limit
Width = Annotated[float, Within(0, endless=True)]  # of an interval; infinite: all numbers
Activation = Annotated[str, OneOf(("tanh", "relu", "silu", "elu", "gelu"))]
Memory = Annotated[str, OneOf(("gru", "lstm", "lru", "s5"))]  # kinds of recurrent units

PLAIN_TYPES = {
    **dict.fromkeys(("Count", "Whole", "Layers", "Depth", "AtLeastTwo"), "int"),
    **dict.fromkeys(("Finite", "Positive", "NotNegative", "Share", "Part"), "float"),
    **dict.fromkeys(("Inside", "Limit", "Width", "Number", "ShareBelowOne"), "float"),
    **dict.fromkeys(("Activation", "Memory"), "str"),
    "Sizes": SIZES_TYPE,
    "Steps": SIZES_TYPE,
}
_ANNOTATED = re.compile(r"(?:\w+\.)*Annotated\[\s*(\w+)\s*,.*\]", re.DOTALL)


def plain_type(kind: str) -> str:
    """Return the plain type of an annotation's text: "float | None" for "Share | None", "int" for
    "Annotated[int, Within(1)]"; any other text unchanged."""
    optional = " | None" if kind.endswith(" | None") else ""
    kind = kind.removesuffix(" | None")
    if found := _ANNOTATED.fullmatch(kind):
        kind = found.group(1)
    return PLAIN_TYPES.get(kind.rpartition(".")[2], kind) + optional
