"""An environment under review: worlds of it are made, and played with random actions."""

from __future__ import annotations

from typing import Any

from sterling import envs
from sterling.checking.environments.random_play import (
    CopyFailed,
    PlayStopped,
    Trajectory,
    play_until_fault,
)
from sterling.checking.review_findings import NotChecked
from sterling.lookup import user_imports
from sterling.types import World

ENVS = 4  # for each of two seeds
NOT_STEPPED = "it cannot be stepped"


class ReviewedEnvironment:
    """Makes worlds of the environment and plays random actions in them. ``fault``: what it raised
    first, in words."""

    def __init__(self, environment: Any, options: dict[str, Any], kind: str):
        self.environment, self.options, self.kind = environment, options, kind
        self.fault = ""

    def world(self, seeds: tuple[int, ...] = (0, 1)) -> World:
        """Make a new world with these seeds."""
        hosted = self.kind in ("factory", "pettingzoo")
        own = {"workers": 1, **self.options} if hosted else self.options
        return envs.make(self.environment, seeds, ENVS, strategy="map", **own)

    def play(self, steps: int, seeds: tuple[int, ...] = (0, 1), key: int = 0) -> Trajectory:
        """Play random actions in a new world and return what it answered, until it raises. Raises
        NotChecked if it does so at once."""
        world = self.world(seeds)
        fault, played = "", None
        try:
            played = play_until_fault(world, seeds, steps, key)
        except PlayStopped as stopped:
            fault, played = _fault_text(stopped.error), stopped.played
        finally:
            world.close()
        self.fault = self.fault or fault
        if played is None:
            raise NotChecked(NOT_STEPPED)
        return played


def _fault_text(error: BaseException) -> str:
    return str(error) if isinstance(error, CopyFailed) else user_imports.describe_error(error)
