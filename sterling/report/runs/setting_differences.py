"""The settings of a run: everything that may make two trainings differ."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Hashable, Sequence
from typing import Any

from sterling.report.runs.read_runs import RunResult

# of config.json
TOP_LEVEL_SETTINGS = (
    "steps",
    "envs",
    "updates",
    "augment",
    "plasticity",
    "sources",
    "hindsight",
    "critic_obs",
    "obs",
    "stop_at",
    "patience",
    "time_budget",
    "encoder",
)
NESTED_SETTINGS = ("env_options", "data", "online", "guide", "init", "speech")  # groups of fields
PATH_SETTINGS = (
    "data.path",
    "guide.path",
    "init.path",
    "speech.model",
    "speech.texts",
    "speech.replay",
    "speech.pool",
)
IGNORED_SETTINGS = (
    "data.hash",
    "init.hash",
    "init.checkpoint",
    "init.seeds",
    "init.statistics_hash",
    "data.unchecked",
    "speech.dump",
    "speech.forget",
    "speech.slots",
)


@dataclasses.dataclass(frozen=True)
class InputFile:
    """A file or folder that was learned from; shown by name, equal where the ``mark`` is equal."""

    name: str = dataclasses.field(compare=False)
    mark: str

    def __str__(self) -> str:
        return self.name


def flat_settings(result: RunResult) -> dict[str, Any]:
    """Return all settings of a run in one flat dict; labels may name any of them.

    Fields of a dataset, a guide, a language model and options are ``data.share``,
    ``speech.levels``, ...; the dataset and the guide themselves are ``data`` and ``guide``. Empty
    or zero ones among these, and those that do not affect the training (``IGNORED_SETTINGS``), are
    left out.
    """
    config = result.config
    nested = {name: config.get(name) for name in TOP_LEVEL_SETTINGS[2:]}
    for name in NESTED_SETTINGS:
        nested |= {f"{name}.{field}": value for field, value in (config.get(name) or {}).items()}
    if "speech.patience" in nested:  # its name in older runs
        nested["speech.scene_seconds"] = nested.pop("speech.patience")
    for name in PATH_SETTINGS:
        if nested.get(name):
            hashed = name in ("data.path", "init.path")
            mark = config[name.removesuffix(".path")].get("hash") if hashed else None
            nested[name] = _input_file(name, str(nested[name]), mark)
    shown = {
        name.removesuffix(".path") if name in PATH_SETTINGS else name: value
        for name, value in nested.items()
        if name not in IGNORED_SETTINGS and (value or name.startswith(("env_options.", "online.")))
    }
    if config.get("phases"):
        shown["then"] = "; ".join(map(_phase_text, config["phases"]))
    known = {name: config[name] for name in TOP_LEVEL_SETTINGS[:2] if name in config}
    fields = dict(config.get("config", {})) | config.get("schedules", {})
    return fields | known | shown


def _phase_text(phase: dict[str, Any]) -> str:
    """Return a later phase as the text that ``--then`` takes."""
    log = phase.get("data") or {}
    words = {"steps": phase.get("steps"), "updates": phase.get("updates")}
    words |= {"environment": phase.get("environment"), "data": log.get("path")}
    words |= {f"env.{name}": value for name, value in phase.get("env_options", {}).items()}
    words |= phase.get("fields", {})
    return " ".join(
        f"{name}={value}" for name, value in words.items() if value not in (None, 0, "")
    )


def differing_settings(results: Sequence[RunResult]) -> dict[str, list[Any]]:
    """Return the settings that differ between results: name -> its value in each, None if absent.

    How a dataset or a guide was used is not among them where only some have one.
    """
    each = [flat_settings(one) for one in results]
    names = dict.fromkeys(name for one in each for name in one)
    table = {name: [one.get(name) for one in each] for name in names}
    return {name: values for name, values in table.items() if _values_differ(name, values, each)}


def settings_key(result: RunResult) -> Hashable:
    """Return a hashable that is equal for results with equal settings."""
    return frozenset(
        (name, _as_hashable(value))
        for name, value in flat_settings(result).items()
        if value is not None
    )


def _input_file(name: str, path: str, mark: str | None) -> InputFile:
    """Return a dataset identified by its content, or by its name where the content is unknown."""
    short = os.path.basename(os.path.normpath(path))
    return InputFile(short, mark or (short if name == "data.path" else os.path.normpath(path)))


def _values_differ(name: str, values: Sequence[Any], each: Sequence[dict[str, Any]]) -> bool:
    thing, dot, _ = name.partition(".")
    having = [value for value, one in zip(values, each, strict=True) if thing in one]
    return len({_as_hashable(value) for value in (having if dot and having else values)}) > 1


def _as_hashable(value: Any) -> Hashable:
    """Convert a JSON value to a hashable one; NaN equals NaN."""
    if isinstance(value, dict):
        return frozenset((name, _as_hashable(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(_as_hashable(part) for part in value)
    return "nan" if isinstance(value, float) and math.isnan(value) else value
