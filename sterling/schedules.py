"""Schedules: numbers that change during training, as functions of the progress.

The progress is 0 in the first iteration and would be 1 after the last one. :func:`linear` and the
others return schedules that can be stored as words (``sterling/schedule_words.py``); any function
of the progress that JAX can trace is a schedule too. This file imports JAX only when a value is
computed: the command line reads schedules.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

from sterling.system.mistake import Mistake
from sterling.system.shown_values import short_text, shown_value

CURVES = ("linear", "cosine", "exponential")  # kinds that go from one value to another
KINDS = ("constant", *CURVES, "warmup", "piecewise")
UNITS = ("progress", "steps", "updates")  # of the places of a piecewise schedule
Function = Callable[[Any], Any]  # from the progress to the value
Real = float | int


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A number as a function of the progress; ``str`` gives its words."""

    kind: str  # constant, linear, cosine, exponential or piecewise
    first: float = 0.0
    last: float = 0.0
    end: float = 1.0  # progress at which ``last`` is reached
    warmup: float = 0.0  # progress over which the value rises from 0 to ``first``
    points: tuple[tuple[float, float], ...] = ()  # (place, value) of a piecewise schedule
    unit: str = "progress"  # of the places: progress, steps or updates

    def __call__(self, progress: Any) -> Any:
        """Return the value at ``progress``, a float32 array of the same shape."""
        import jax.numpy as jnp

        progress = jnp.asarray(progress, jnp.float32)
        if self.kind == "piecewise":
            places, values = (jnp.asarray(x, jnp.float32) for x in zip(*self.points, strict=True))
            return jnp.interp(progress, places, values)
        share = jnp.clip((progress - self.warmup) / (self.end - self.warmup), 0.0, 1.0)
        value = self._curve(share)
        if not self.warmup:
            return value
        return jnp.where(progress < self.warmup, self.first * progress / self.warmup, value)

    def _curve(self, share: Any) -> Any:
        """Return the value after the warm-up, at ``share`` of the way."""
        import jax.numpy as jnp

        if self.kind == "constant":
            return jnp.full_like(share, self.first)
        if self.kind == "exponential":
            return self.first * jnp.exp(share * math.log(self.last / self.first))
        left = 1.0 - share if self.kind == "linear" else 0.5 * (1.0 + jnp.cos(jnp.pi * share))
        return self.first * left + self.last * (1.0 - left)

    def corners(self) -> list[tuple[float, float]]:
        """Return pairs of progress and value, in order, between which the value is monotonic."""
        if self.kind == "piecewise":
            low, high = self.points[0][1], self.points[-1][1]
            known = [(place if self.unit == "progress" else 0.0, y) for place, y in self.points]
            return [(0.0, low), *known, (1.0, high)]
        last = self.first if self.kind == "constant" else self.last
        found = [(self.warmup, self.first), (self.end, last)]
        return [(0.0, 0.0), *found] if self.warmup else found

    def with_places(self, to_progress: Callable[[float], float]) -> Schedule:
        """Return a piecewise schedule whose places are progress; others are returned unchanged."""
        if self.unit == "progress":
            return self
        points = tuple((to_progress(place), value) for place, value in self.points)
        return dataclasses.replace(self, points=points, unit="progress")

    def __str__(self) -> str:
        if self.kind == "piecewise":
            unit = "" if self.unit == "progress" else f"{self.unit}:"
            points = (f"{_text(place)}={_text(value)}" for place, value in self.points)
            return f"piecewise:{unit}{','.join(points)}"
        if self.kind == "constant":
            return f"warmup:{_text(self.warmup)}:{_text(self.first)}" if self.warmup else (
                f"constant:{_text(self.first)}"
            )  # fmt: skip
        rise = f"warmup:{_text(self.warmup)}+" if self.warmup else ""
        end = "" if self.end == 1.0 else f":{_text(self.end)}"
        return f"{rise}{self.kind}:{_text(self.first)}:{_text(self.last)}{end}"


def constant(value: Real) -> Schedule:
    """Return the schedule that is ``value`` throughout."""
    return Schedule("constant", _number(value))


def linear(first: Real, last: Real, end: Real = 1.0) -> Schedule:
    """Return the straight line from ``first`` to ``last``, which is reached at progress ``end``."""
    return check_numbers(Schedule("linear", _number(first), _number(last), _number(end)))


def cosine(first: Real, last: Real, end: Real = 1.0) -> Schedule:
    """Return half a cosine wave from ``first`` to ``last``, reached at progress ``end``."""
    return check_numbers(Schedule("cosine", _number(first), _number(last), _number(end)))


def exponential(first: Real, last: Real, end: Real = 1.0) -> Schedule:
    """Return the exponential from ``first`` to ``last``, reached at progress ``end``. Both must
    have the same sign, and neither may be 0."""
    return check_numbers(Schedule("exponential", _number(first), _number(last), _number(end)))


def piecewise(points: Iterable[tuple[Real, Real]], unit: str = "progress") -> Schedule:
    """Return straight lines between ``points``, pairs of a place and a value; constant before the
    first and after the last. The places are progress, or ``steps`` or ``updates`` since the
    schedule began."""
    found = tuple((_number(place), _number(value)) for place, value in points)
    return check_numbers(Schedule("piecewise", points=found, unit=unit))


def warmup(share: Real, then: Real | Schedule) -> Schedule:
    """Return a straight rise from 0 over ``share`` of the run, to the first value of the schedule
    ``then``, which takes the rest of the run; a number is reached and kept."""
    rest = then if isinstance(then, Schedule) else constant(then)
    if rest.kind == "piecewise" or rest.warmup:
        raise Mistake(f"warmup goes before constant, {', '.join(CURVES)}; got {rest}")
    return check_numbers(dataclasses.replace(rest, warmup=_number(share)))


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise Mistake(f"a schedule is made of numbers; got {shown_value(value)}") from error


def check_numbers(made: Schedule) -> Schedule:
    """Return the schedule; raise :class:`Mistake` if its numbers contradict each other."""
    if made.kind == "piecewise":
        _check_points(made)
    elif not 0 <= made.warmup < made.end <= 1:
        what = "warm-up SHARE and END" if made.warmup else "END"
        raise Mistake(f"{made}: {what} must be shares of the run, 0 <= SHARE < END <= 1")
    if made.kind == "exponential" and not made.first * made.last > 0:
        raise Mistake(f"{made}: an exponential cannot reach or cross 0. Use linear or cosine.")
    return made


def _check_points(made: Schedule) -> None:
    places = [place for place, _ in made.points]
    if made.unit not in UNITS:
        raise Mistake(f"places of a schedule are {', '.join(UNITS)}; got {made.unit!r}")
    if not places or any(b <= a for a, b in itertools.pairwise(places)):
        raise Mistake(
            f"{short_text(str(made))}: give at least one point, in order of increasing places"
        )
    if places[0] < 0 or (made.unit == "progress" and places[-1] > 1):
        most = "between 0 and 1" if made.unit == "progress" else "0 or more"
        raise Mistake(f"{short_text(str(made))}: places must be {most}")


def _text(number: float) -> str:
    """Return the shortest text of a number that reads back exactly."""
    return repr(number).removesuffix(".0")
