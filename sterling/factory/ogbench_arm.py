"""OGBench's arm over a table: one target after the other, by plans or by closed-loop oracles."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sterling.factory.ogbench import Collection, Told

NOISE, SMOOTHING, LEAST = 0.1, 0.5, 0.4  # of plans and actions; least length of an oracle's action
SPREAD = np.array([1.0, 1.0, 1.0, 3.0, 10.0])  # noise of position, turning and gripper
STACK = {
    "single": (0.0, 0.0),
    "double": (0.0, 0.25),
    "triple": (0.05, 0.35),
    "quadruple": (0.1, 0.5),
}
PARTS = {"cube": ("cube",), "puzzle": ("button",), "scene": ("cube", "button", "drawer", "window")}


class Script:
    """The oracles and their world."""

    def __init__(self, wanted: Collection, make: Callable[..., Any]):
        options = {"terminate_at_goal": False, "mode": "data_collection"}
        self._env = make(wanted.environment, max_episode_steps=wanted.steps, **options)
        self._kind, self._family = wanted.kind, wanted.world.split("-")[0]
        self._stack = STACK.get(wanted.world.split("-")[-1], (0.5, 0.5))
        self._oracles = {part: self._oracle(part) for part in PARTS[self._family]}

    def _oracle(self, part: str) -> Any:
        """Who moves one kind of thing."""
        options: dict[str, Any] = {"min_norm": LEAST}
        form = "plan" if self._kind == "play" else "markov"
        if form == "plan":
            options = {"noise": NOISE, "noise_smoothing": SMOOTHING}
        elif self._family == "scene" and part == "cube":
            options["max_step"] = 100
        if self._family == "puzzle":
            options["gripper_always_closed"] = True
        module = importlib.import_module(f"ogbench.manipspace.oracles.{form}.{part}_{form}")
        return getattr(module, f"{part.capitalize()}{form.capitalize()}Oracle")(
            env=self._env, **options
        )

    def live(self, dice: np.random.Generator) -> Told | None:
        """One episode; None where a cube was lost from sight."""
        from sterling.factory.ogbench import told

        obs, info = self._env.reset(seed=int(dice.integers(2**31)))
        stack, noise = dice.uniform(*self._stack), dice.uniform(0.0, NOISE)
        oracle, rows, over = self._begun(obs, info), [], False
        while not over:
            action = self._action(oracle, obs, info, dice, noise)
            following, _, ended, cut, info = self._env.step(action)
            if oracle.done:
                oracle = self._begun(*self._env.unwrapped.set_new_target(p_stack=stack))
            rows.append((obs, action, info))
            obs, over = following, ended or cut
        lived = told(rows, obs)
        return lived if self._family != "scene" or _in_sight(lived["info/qpos"]) else None

    def _begun(self, obs: Any, info: dict[str, Any]) -> Any:
        """The oracle of what is to be moved now."""
        oracle = self._oracles[info["privileged/target_task"]]
        oracle.reset(obs, info)
        return oracle

    def _action(
        self, oracle: Any, obs: Any, info: dict[str, Any], dice: np.random.Generator, noise: float
    ) -> np.ndarray:
        """What is done; the noise of plans is already in them."""
        chance = 0.0 if self._kind == "play" else 0.2 if self._family == "puzzle" else 0.1
        if dice.uniform() < chance:
            return dice.uniform(-1.0, 1.0, len(SPREAD)).astype(np.float32)
        action = np.array(oracle.select_action(obs, info))
        if self._kind == "noisy":
            action = action + dice.normal(0.0, noise * SPREAD)
        return np.clip(action, -1.0, 1.0).astype(np.float32)


def _in_sight(qpos: np.ndarray) -> bool:
    """Whether the cube was never too far right, nor too far left outside the drawer."""
    _, across, height = qpos[:-1, 14:17].T
    outside = (height < 0.06) | (height > 0.08)
    return not ((across >= 0.29) | ((across <= -0.3) & outside)).any()
