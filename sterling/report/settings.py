"""What a run was set to: everything that may make it another training than the next one."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Hashable, Sequence
from typing import Any

from sterling.report.runs import Result

PLAIN = ("steps", "envs", "updates", "augment", "sources", "hindsight")  # of config.json
NESTED = ("env_options", "data", "online", "guide", "speech")  # of several fields each
PLACES = ("data.path", "guide.path", "speech.model", "speech.texts", "speech.replay", "speech.pool")
SILENT = ("data.hash", "data.unchecked", "speech.dump", "speech.forget", "speech.slots")


@dataclasses.dataclass(frozen=True)
class Source:
    """A file or folder that was learned from: shown by its name, the same where its mark is."""

    name: str = dataclasses.field(compare=False)
    mark: str

    def __str__(self) -> str:
        return self.name


def settings(result: Result) -> dict[str, Any]:
    """Everything that was set, flat; what a label may have to name.

    Fields of a log, a guide, a language model and options are ``data.share``, ``speech.levels``,
    ...; the log and the guide themselves are ``data`` and ``guide``. What is empty or zero there,
    or says nothing of the training (``SILENT``), is left out.
    """
    config = result.config
    beside = {name: config.get(name) for name in PLAIN[2:]}
    for name in NESTED:
        beside |= {f"{name}.{field}": value for field, value in (config.get(name) or {}).items()}
    for name in PLACES:
        if beside.get(name):
            mark = config["data"].get("hash") if name == "data.path" else None
            beside[name] = _source(name, str(beside[name]), mark)
    told = {
        name.removesuffix(".path") if name in PLACES else name: value
        for name, value in beside.items()
        if name not in SILENT and (value or name.startswith(("env_options.", "online.")))
    }
    if config.get("phases"):
        told["then"] = "; ".join(map(_words, config["phases"]))
    known = {name: config[name] for name in PLAIN[:2] if name in config}
    return dict(config.get("config", {})) | known | told


def _words(phase: dict[str, Any]) -> str:
    """A later phase in the words that ask for it."""
    log = phase.get("data") or {}
    said = {"steps": phase.get("steps"), "updates": phase.get("updates")}
    said |= {"environment": phase.get("environment"), "data": log.get("path")}
    said |= {f"env.{name}": value for name, value in phase.get("env_options", {}).items()}
    said |= phase.get("fields", {})
    return " ".join(f"{name}={value}" for name, value in said.items() if value not in (None, 0, ""))


def differing(results: Sequence[Result]) -> dict[str, list[Any]]:
    """Settings that are not the same in all results: name -> its value in each, None if absent.

    How a log or a guide was used is not among them where only some have one.
    """
    each = [settings(one) for one in results]
    names = dict.fromkeys(name for one in each for name in one)
    table = {name: [one.get(name) for one in each] for name in names}
    return {name: values for name, values in table.items() if _differ(name, values, each)}


def alike(result: Result) -> Hashable:
    """Equal for results whose settings are."""
    return frozenset(
        (name, _fixed(value)) for name, value in settings(result).items() if value is not None
    )


def _source(name: str, path: str, mark: str | None) -> Source:
    """A log is the same wherever it lies: by its content, or its name where that is not known."""
    short = os.path.basename(os.path.normpath(path))
    return Source(short, mark or (short if name == "data.path" else os.path.normpath(path)))


def _differ(name: str, values: Sequence[Any], each: Sequence[dict[str, Any]]) -> bool:
    thing, dot, _ = name.partition(".")
    having = [value for value, one in zip(values, each, strict=True) if thing in one]
    return len({_fixed(value) for value in (having if dot and having else values)}) > 1


def _fixed(value: Any) -> Hashable:
    """A value of a JSON file that can be compared; NaN is the same as NaN."""
    if isinstance(value, dict):
        return frozenset((name, _fixed(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(_fixed(part) for part in value)
    return "nan" if isinstance(value, float) and math.isnan(value) else value
