"""Play OGBench's arm environments: one target after another, by plans or closed-loop oracles."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from sterling.data_generation.scripts.ogbench_collections import (
    Collection,
    EpisodeColumns,
    episode_columns,
)

# noise of plans and actions; its smoothing; the smallest norm of an oracle's action
PLAN_NOISE, SMOOTHING, MIN_ACTION_NORM = 0.1, 0.5, 0.4
NOISE_SCALES = np.array(
    [1.0, 1.0, 1.0, 3.0, 10.0]
)  # relative noise of position, rotation and gripper
STACK_CHANCES = {
    "single": (0.0, 0.0),
    "double": (0.0, 0.25),
    "triple": (0.05, 0.35),
    "quadruple": (0.1, 0.5),
}
MOVABLE_PARTS = {
    "cube": ("cube",),
    "puzzle": ("button",),
    "scene": ("cube", "button", "drawer", "window"),
}


class Script:
    """The oracles of a collection, and their environment."""

    def __init__(self, wanted: Collection, make: Callable[..., Any]):
        options = {"terminate_at_goal": False, "mode": "data_collection"}
        self._env = make(wanted.environment, max_episode_steps=wanted.steps, **options)
        self._kind, self._family = wanted.kind, wanted.world.split("-")[0]
        self._stack = STACK_CHANCES.get(wanted.world.split("-")[-1], (0.5, 0.5))
        self._oracles = {part: self._oracle(part) for part in MOVABLE_PARTS[self._family]}

    def _oracle(self, part: str) -> Any:
        """Build the oracle that moves one kind of object."""
        options: dict[str, Any] = {"min_norm": MIN_ACTION_NORM}
        form = "plan" if self._kind == "play" else "markov"
        if form == "plan":
            options = {"noise": PLAN_NOISE, "noise_smoothing": SMOOTHING}
        elif self._family == "scene" and part == "cube":
            options["max_step"] = 100
        if self._family == "puzzle":
            options["gripper_always_closed"] = True
        module = importlib.import_module(f"ogbench.manipspace.oracles.{form}.{part}_{form}")
        return getattr(module, f"{part.capitalize()}{form.capitalize()}Oracle")(
            env=self._env, **options
        )

    def play_episode(self, rng: np.random.Generator) -> EpisodeColumns | None:
        """Play one episode; return None if a cube left the field of view."""
        obs, info = self._env.reset(seed=int(rng.integers(2**31)))
        stack, noise = rng.uniform(*self._stack), rng.uniform(0.0, PLAN_NOISE)
        oracle, rows, over = self._begun(obs, info), [], False
        while not over:
            action = self._action(oracle, obs, info, rng, noise)
            following, _, ended, cut, info = self._env.step(action)
            if oracle.done:
                oracle = self._begun(*self._env.unwrapped.set_new_target(p_stack=stack))
            rows.append((obs, action, info))
            obs, over = following, ended or cut
        columns = episode_columns(rows, obs)
        return (
            columns if self._family != "scene" or _stayed_in_sight(columns["info/qpos"]) else None
        )

    def _begun(self, obs: Any, info: dict[str, Any]) -> Any:
        """Return the oracle of the current target, reset."""
        oracle = self._oracles[info["privileged/target_task"]]
        oracle.reset(obs, info)
        return oracle

    def _action(
        self, oracle: Any, obs: Any, info: dict[str, Any], rng: np.random.Generator, noise: float
    ) -> np.ndarray:
        """Return the next action, with noise or at random; plans contain their noise already."""
        chance = 0.0 if self._kind == "play" else 0.2 if self._family == "puzzle" else 0.1
        if rng.uniform() < chance:
            return rng.uniform(-1.0, 1.0, len(NOISE_SCALES)).astype(np.float32)
        action = np.array(oracle.select_action(obs, info))
        if self._kind == "noisy":
            action = action + rng.normal(0.0, noise * NOISE_SCALES)
        return np.clip(action, -1.0, 1.0).astype(np.float32)


def _stayed_in_sight(qpos: np.ndarray) -> bool:
    """Whether the cube was never too far right, and never too far left outside the drawer."""
    _, across, height = qpos[:-1, 14:17].T
    outside = (height < 0.06) | (height > 0.08)
    return not ((across >= 0.29) | ((across <= -0.3) & outside)).any()
