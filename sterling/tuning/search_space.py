"""Search spaces: one dimension per field of an algorithm's Config, written as text.

    lr=1e-5..1e-2:log        a number, uniform in its logarithm
    gamma=0.9..0.999:1-log   a number, uniform in the logarithm of its distance from 1
    clip=0.1..0.4            a number, uniform
    epochs=1..20             a whole number, where the field is one (``:log`` works as well)
    activation=tanh|relu     one of several values

Searchers work in the unit cube: ``unit`` maps a field's value there, ``value`` back.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

import numpy as np
from jaxtyping import Float

from sterling import algorithms
from sterling.field_types import SIZES_TYPE
from sterling.lookup.name_suggestions import did_you_mean, parse_literal
from sterling.lookup.peer_names import unknown_option
from sterling.types import Mistake

SCALES = ("linear", "log", "1-log")
Fields = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Dimension:
    """One field's range: ``low`` to ``high`` on a scale, or one of ``options``."""

    name: str
    kind: str = "float"  # float, int or choice
    low: float = 0.0
    high: float = 1.0
    scale: str = "linear"
    options: tuple[Any, ...] = ()

    def value(self, unit: float) -> Any:
        """Return the field's value at ``unit`` in [0, 1]."""
        unit = min(max(float(unit), 0.0), 1.0)
        if self.kind == "choice":
            return self.options[min(int(unit * len(self.options)), len(self.options) - 1)]
        if self.kind == "int":
            first, last = self._warp(self.low - 0.5), self._warp(self.high + 0.5)
            found = round(self._unwarp(first + unit * (last - first)))
            return int(min(max(found, self.low), self.high))
        first, last = self._warp(self.low), self._warp(self.high)
        return float(min(max(self._unwarp(first + unit * (last - first)), self.low), self.high))

    def unit(self, value: Any) -> float:
        """Return a value's place in [0, 1]; the middle of its share for choices and integers."""
        if self.kind == "choice":
            return (self.options.index(value) + 0.5) / len(self.options)
        half = 0.5 if self.kind == "int" else 0.0
        first, last = self._warp(self.low - half), self._warp(self.high + half)
        return min(max((self._warp(float(value)) - first) / (last - first), 0.0), 1.0)

    def __str__(self) -> str:
        if self.kind == "choice":
            return f"{self.name}=" + "|".join(map(_option_text, self.options))
        scale = "" if self.scale == "linear" else f":{self.scale}"
        return f"{self.name}={self.low:g}..{self.high:g}{scale}"

    def _warp(self, x: float) -> float:
        if self.scale == "linear":
            return x
        return math.log(x) if self.scale == "log" else -math.log(1.0 - x)

    def _unwarp(self, x: float) -> float:
        if self.scale == "linear":
            return x
        return math.exp(x) if self.scale == "log" else 1.0 - math.exp(-x)


@dataclasses.dataclass(frozen=True)
class Space:
    """All dimensions, in the order given."""

    dimensions: tuple[Dimension, ...]

    def __iter__(self) -> Iterator[Dimension]:
        return iter(self.dimensions)

    def __len__(self) -> int:
        return len(self.dimensions)

    def fields(self, point: Float[np.ndarray, "dimension"]) -> Fields:
        """Return the fields at a point of the unit cube."""
        return {each.name: each.value(x) for each, x in zip(self, point, strict=True)}

    def point(self, fields: Fields) -> Float[np.ndarray, "dimension"]:
        """Return the point of the unit cube at ``fields`` (the inverse of ``fields``)."""
        return np.array([each.unit(fields[each.name]) for each in self], np.float64)

    def sample(self, generator: np.random.Generator) -> Fields:
        """Return fields drawn uniformly from the unit cube."""
        return self.fields(generator.random(len(self)))

    def to_json(self) -> list[str]:
        """Return one text per dimension, from which ``from_json`` rebuilds it."""
        return [json.dumps(dataclasses.asdict(each)) for each in self]

    @classmethod
    def from_json(cls, texts: list[str]) -> Space:
        """Rebuild a space from the texts of ``to_json``."""
        plain = [json.loads(text) for text in texts]
        return cls(
            tuple(Dimension(**{**d, "options": tuple(map(_option, d["options"]))}) for d in plain)
        )


def read_space(algorithm: str, given: Mapping[str, Any] | None = None) -> Space:
    """Return the space to search for ``algorithm``.

    ``given`` maps fields to ranges, as text (``"1e-5..1e-2:log"``), as a list of options, or as a
    :class:`Dimension`; without it the algorithm's own space is taken from spaces.json. Raises
    Mistake for a field the algorithm does not have and for an invalid range.
    """
    if given is None:
        given = default_ranges(algorithm)
    if not given:
        raise Mistake(
            f"there is no default search space for {algorithm}; give one, such as lr=1e-5..1e-2"
        )
    config = algorithms.find(algorithm).Config
    kinds = {field.name: str(field.type) for field in dataclasses.fields(config)}
    wrong = []
    for name in (name for name in given if name not in kinds):
        has = f"it has {', '.join(kinds)}"
        near = unknown_option(name, kinds, value=str(given[name]), otherwise=has)
        wrong.append(f"{algorithm} has no field {name!r} to search{near}")
    if wrong:
        raise Mistake("; ".join(wrong))
    made = (
        _check_dimension(_make_dimension(name, text, kinds[name]), kinds[name])
        for name, text in given.items()
    )
    return Space(tuple(made))


def default_ranges(algorithm: str) -> dict[str, str]:
    """Return the algorithm's own space from spaces.json: float fields only, for one program."""
    text = resources.files("sterling.tuning").joinpath("spaces.json").read_text()
    return dict(json.loads(text).get(algorithm, {}))


def parse_ranges(texts: list[str]) -> dict[str, str]:
    """Parse ``["lr=1e-5..1e-2:log", ...]`` into a mapping from field to range."""
    found = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if not name or not equals or not rest:
            raise Mistake(f"a search space is written NAME=LOW..HIGH[:log] or NAME=A|B; got {text}")
        found[name.strip().replace("-", "_")] = rest.strip()
    return found


def is_range(value: Any, kind: str) -> bool:
    """Whether the value of a field of this type says what to search: LOW..HIGH, A|B, a list."""
    if isinstance(value, tuple) and kind == SIZES_TYPE:
        return not all(isinstance(size, int) for size in value)  # else it is one size per layer
    if isinstance(value, (Dimension, list, tuple)):
        return True
    return isinstance(value, str) and ("|" in value or (".." in value and kind != "str"))


def _option_text(value: Any) -> str:
    """Return an option as it is written on the command line."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _option(value: Any) -> Any:
    """Return an option as it is in a Config: the sizes of layers are a tuple."""
    return tuple(value) if isinstance(value, list) else value


def _make_dimension(name: str, given: Any, kind: str) -> Dimension:
    if isinstance(given, Dimension):
        return dataclasses.replace(given, name=name)
    if isinstance(given, (list, tuple)):
        return Dimension(name, "choice", options=tuple(map(_option, given)))
    text = str(given)
    if ".." not in text:
        return Dimension(name, "choice", options=tuple(parse_literal(p) for p in text.split("|")))
    ends, _, scale = text.partition(":")
    low, _, high = ends.partition("..")
    try:
        numbers = float(low), float(high)
    except ValueError as error:
        raise Mistake(f"{name}={text}: {ends!r} is not a range; write LOW..HIGH") from error
    made = "int" if kind.startswith("int") else "float"
    return Dimension(name, made, *numbers, scale or "linear")


def _check_dimension(made: Dimension, kind: str) -> Dimension:
    """Return the dimension; raises Mistake where its range is invalid."""
    if made.kind == "choice":
        if len(set(map(str, made.options))) < 2:
            fixed = f"to fix the field, use --set {made.name}=VALUE"
            raise Mistake(f"{made}: a choice needs two different options; {fixed}")
        return made
    if made.scale not in SCALES:
        near = did_you_mean(made.scale, SCALES, f"use one of {', '.join(SCALES)}")
        raise Mistake(f"{made.name}: unknown scale {made.scale!r}{near}")
    if not kind.startswith(("float", "int")):
        raise Mistake(f"{made.name} is of type {kind} and has no range; write {made.name}=A|B")
    if not math.isfinite(made.low) or not math.isfinite(made.high) or made.low >= made.high:
        raise Mistake(f"{made}: the lower end must lie below the upper, both finite")
    if made.scale == "log" and made.low <= 0.0:
        raise Mistake(f"{made}: a logarithmic range begins above 0")
    if made.scale == "1-log" and (made.high >= 1.0 or made.kind == "int"):
        raise Mistake(f"{made}: a range of the scale 1-log holds numbers below 1")
    if made.kind == "int" and (made.low % 1 or made.high % 1):
        raise Mistake(f"{made}: {made.name} takes whole numbers")
    return made
