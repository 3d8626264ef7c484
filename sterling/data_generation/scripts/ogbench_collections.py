"""Names of OGBench's scripted collections, and the columns of their episodes."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np

from sterling.lookup.name_suggestions import did_you_mean
from sterling.types import Mistake

MAZES = tuple(f"pointmaze-{size}" for size in ("medium", "large", "giant", "teleport"))
TABLES = (
    *(f"cube-{many}" for many in ("single", "double", "triple", "quadruple")),
    *("scene", *(f"puzzle-{size}" for size in ("3x3", "4x4", "4x5", "4x6"))),
)
KINDS_BY_WORLD = {
    **dict.fromkeys(MAZES, ("navigate", "stitch")),
    **dict.fromkeys(TABLES, ("play", "noisy")),
}
COLLECTION_NAMES = tuple(
    f"{world}-{kind}-v0" for world, kinds in KINDS_BY_WORLD.items() for kind in kinds
)
STEPS_BY_KIND = {"stitch": 200}  # steps per episode of some kinds; otherwise
GIANT_MAZE_STEPS, DEFAULT_STEPS = 2000, 1000  # in the giant maze, and elsewhere
NAME_PATTERN = re.compile(r"(.+)-(navigate|stitch|play|noisy)((?:-singletask(?:-task[1-5])?)?)-v0")
INFO_NAMES = ("qpos", "qvel", "button_states")  # infos that are stored, if the environment has them
EpisodeColumns = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Collection:
    """One of OGBench's published datasets."""

    world: str
    kind: str
    task: str = ""  # "", "-singletask" or "-singletask-taskN"

    @property
    def environment(self) -> str:
        """Return the id of the environment where learners are evaluated."""
        return f"ogbench:{self.world}{self.task}-v0"

    @property
    def steps(self) -> int:
        """Return the number of steps of every episode."""
        return STEPS_BY_KIND.get(
            self.kind, GIANT_MAZE_STEPS if self.world.endswith("giant") else DEFAULT_STEPS
        )


def knows(name: str) -> bool:
    """Whether a name has the form of OGBench's datasets."""
    return NAME_PATTERN.fullmatch(name.removeprefix("ogbench:")) is not None


def parse_collection(name: str) -> Collection:
    """Return the collection called ``name``; raise Mistake if no scripted one has that name."""
    found = NAME_PATTERN.fullmatch(name.removeprefix("ogbench:"))
    if not found or found[2] not in KINDS_BY_WORLD.get(found[1], ()):
        near = did_you_mean(name, COLLECTION_NAMES, f"use one of {', '.join(COLLECTION_NAMES)}")
        raise Mistake(f"Unknown scripted collection {name!r}{near}")
    return Collection(*found.groups())


def episode_columns(rows: list[tuple[Any, Any, dict[str, Any]]], final: Any) -> EpisodeColumns:
    """Return the columns of ``(observation, action, info after the step)`` rows and a final
    observation."""
    arrays = {
        "obs": np.array([*(obs for obs, _, _ in rows), final], np.float32),
        "action": np.array([action for _, action, _ in rows], np.float32),
    }
    infos = [info for _, _, info in rows]
    for name in INFO_NAMES:
        if name in infos[0]:
            first, rest = infos[0][f"prev_{name}"], [info[name] for info in infos]
            kind = np.int64 if name == "button_states" else np.float32
            arrays[f"info/{name}"] = np.array([first, *rest], kind)
    return arrays
