"""Published scores as data: what a paper or library reports, under which protocol, and how closely
a correct implementation should agree.

Every file of ``references/scores/`` is one source::

    {"schema": 1,
     "source":   {"name", "title", "url", "commit", "note"},
     "defaults": {what all entries share},
     "entries":  [{"algorithm", "environment", "value", ...}, ...]}

An entry, after the defaults are filled in, has the fields of :class:`Reference`.

**Tolerance.** The mean of a correct implementation under the same protocol is expected within
``value`` plus or minus ``tolerance``. With ``tolerance_from`` "rule" it is
:func:`default_tolerance`: the larger of 10 % of the value and the uncertainty from the source's own
spread (the half width of Student's 95 % interval if the spread is over seeds; the spread itself if
it is over the episodes of a single run, or of unknown kind). With "acceptance band" it reaches down
to the lowest score still accepted as correct, a judgement made once from all sources of that task.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sterling.system.mistake import Mistake

FOLDER = Path(__file__).parent / "scores"
SCHEMA = 1
RULE, BAND = "rule", "acceptance band"
OVER_SEEDS = "std over seeds"
SPREADS = (
    *(OVER_SEEDS, "std over evaluation episodes", "half of a 95 % interval"),
    "std, of what is not stated",
)
CHOICES = {
    "metric": ("return", "d4rl", "neorl2", "success percentage"),
    "observations": ("state", "pixels"),
    "returns": ("evaluation", "training"),
    "policy": ("deterministic", "stochastic", "unknown"),
    "steps_kind": ("environment steps", "updates"),
    "spread_kind": (None, *SPREADS),
    "tolerance_from": (RULE, BAND),
}


@dataclasses.dataclass(frozen=True)
class Source:
    """Who published a score, and where to find it."""

    name: str
    title: str
    url: str | None
    commit: str | None  # of the repository, if it is one
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Reference:
    """One published score and the protocol it was measured under."""

    algorithm: str  # lower case, as the source calls it
    environment: str  # with its version, as the source calls it
    value: float  # in the unit of ``metric``
    tolerance: float  # same unit; see above
    source: Source
    metric: str  # "return", or a normalised score: "d4rl", "neorl2", "success percentage"
    returns: str  # of "evaluation" episodes, or of "training" episodes with exploration
    policy: str  # in those episodes: "deterministic", "stochastic", "unknown"
    taken: str  # "last", "max over training", ...: which point of the run is reported
    observations: str = "state"  # or "pixels"
    spread: float | None = None
    spread_kind: str | None = None
    seeds: int | None = None  # None: the source does not say
    steps: int | None = None  # per seed; None: the source does not say
    steps_kind: str = "environment steps"  # the agent's, not frames; or gradient "updates"
    variant: str = ""  # distinguishes two rows of one algorithm and source
    note: str = ""
    tolerance_from: str = RULE

    @property
    def low(self) -> float:
        """Return the lowest mean that agrees with this reference."""
        return self.value - self.tolerance

    @property
    def high(self) -> float:
        """Return the highest mean that agrees with this reference."""
        return self.value + self.tolerance


def default_tolerance(
    value: float | int,
    spread: float | int | None = None,
    kind: str | None = None,
    seeds: int | None = None,
) -> float:
    """Return the default tolerance, rounded to four digits.

    It is max(0.1 |value|, t_{n-1} s / sqrt(n)) for a spread s over n > 1 seeds, max(0.1 |value|, s)
    for any other spread.
    """
    half = float(spread or 0.0)
    if spread is not None and kind == OVER_SEEDS and seeds and seeds > 1:
        from scipy.special import stdtrit

        half = float(stdtrit(seeds - 1, 0.975)) * spread / seeds**0.5
    return float(f"{max(0.1 * abs(value), half):.4g}")


@functools.cache
def load(folder: Path = FOLDER) -> tuple[Reference, ...]:
    """Load and check every reference of a folder's files.

    Raises Mistake naming the file, the entry and the field that is wrong.
    """
    return tuple(one for path in sorted(folder.glob("*.json")) for one in read_references(path))


def read_references(path: str | Path) -> list[Reference]:
    """Load and check the references of one file; raises Mistake as :func:`load` does."""
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Mistake(f"{path} is not a file of published scores ({error})") from error
    missing = {"schema", "source", "defaults", "entries"} - set(content)
    if missing or content["schema"] != SCHEMA:
        raise Mistake(f"{path} must have schema {SCHEMA}, source, defaults and entries")
    source = _parse_fields(Source, content["source"], f"{path.name}, source")
    shared = content["defaults"]
    made = [
        _parse_reference(source, shared | entry, f"{path.name}, entry {number}")
        for number, entry in enumerate(content["entries"], 1)
    ]
    _refuse_duplicates(path, made)
    return made


def find(
    algorithm: str, environment: str, among: Iterable[Reference] | None = None
) -> list[Reference]:
    """Return the references of this algorithm on this task, in any version; same version and state
    observations first.

    Names are compared without case and punctuation, so ``td3+bc`` is ``td3bc`` and EnvPool's
    ``CheetahRun-v1`` is the DeepMind Control suite's ``cheetah-run``.
    """
    known = load() if among is None else among
    wanted = (plain_name(algorithm), task_name(environment))
    found = [r for r in known if (plain_name(r.algorithm), task_name(r.environment)) == wanted]
    return sorted(
        found,
        key=lambda r: (
            version_suffix(r.environment) not in (None, version_suffix(environment)),
            r.observations != "state",
            r.source.name,
        ),
    )


def plain_name(name: str) -> str:
    """Return a name without case and punctuation."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def task_name(environment: str) -> str:
    """Return an environment's name without suite, version and Atari variant."""
    name = re.sub(r"-v\d+$", "", environment.rsplit("/", 1)[-1])
    return plain_name(re.sub(r"NoFrameskip$", "", name))


def version_suffix(environment: str) -> str | None:
    """Return the version, such as ``v5`` of ``Hopper-v5``; None if the name has none."""
    found = re.search(r"-(v\d+)$", environment)
    return found[1] if found else None


def _parse_reference(source: Source, entry: dict[str, Any], place: str) -> Reference:
    numbers = {name: entry[name] for name in ("value", "tolerance", "spread") if name in entry}
    for name, value in numbers.items():
        if not _is_finite(value) and not (name == "spread" and value is None):
            raise Mistake(f"{place}: {name} must be a finite number; got {value!r}")
    if entry.get("spread") is None:
        entry = {**entry, "spread": None, "spread_kind": None}
    floats = {name: float(value) for name, value in numbers.items() if value is not None}
    made: Reference = _parse_fields(Reference, {"source": source} | entry | floats, place)
    for field, allowed in CHOICES.items():
        if getattr(made, field) not in allowed:
            raise Mistake(f"{place}: {field} must be one of {allowed}; got {entry.get(field)!r}")
    if made.tolerance < 0 or (made.spread or 0.0) < 0:
        raise Mistake(f"{place}: spread and tolerance must not be negative")
    if made.spread is not None and made.spread_kind is None:
        raise Mistake(f"{place}: a spread needs a spread_kind, one of {SPREADS}")
    return made


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _parse_fields(kind: type, plain_values: dict[str, Any], place: str) -> Any:
    fields = dataclasses.fields(kind)
    unknown = set(plain_values) - {field.name for field in fields}
    needed = {field.name for field in fields if field.default is dataclasses.MISSING}
    missing = needed - set(plain_values)
    if unknown or missing:
        wrong = [f"unknown {name}" for name in sorted(unknown)]
        wrong += [f"missing {name}" for name in sorted(missing)]
        raise Mistake(f"{place}: {', '.join(wrong)}")
    return kind(**plain_values)


def _refuse_duplicates(path: Path, references: list[Reference]) -> None:
    seen: set[tuple[Any, ...]] = set()
    for r in references:
        key = (r.algorithm, r.variant, r.environment, r.steps, r.returns, r.observations, r.metric)
        if key in seen:
            raise Mistake(f"{path.name} has {r.algorithm} on {r.environment} twice; add a variant")
        seen.add(key)
