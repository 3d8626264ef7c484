"""Judges of EnvPool's tasks with goals: the rules of Gymnasium-Robotics, in JAX.

A test compares them with the simulators' rewards. Tasks whose goals are rotations too (a hand's
block, egg and pen) have no judge here.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from gymnasium import spaces
from jaxtyping import Array, Float

from sterling.problem.goal_obs import GoalJudge, has_goals

MAZE_GOAL_RADIUS = 0.45  # metres
SUCCESS_CHANNELS = {"is_success": "is_success:last:more:0..1", "success": "success:max:more:0..1"}


@dataclasses.dataclass(frozen=True)
class ReachJudge:
    """Judge of the Fetch tasks and of the hand that reaches: reward -1 beyond ``threshold``, else
    0, or, if ``dense``, the negative distance; nothing ends an episode."""

    threshold: float
    dense: bool

    def __call__(
        self, achieved: Float[Array, "number"], desired: Float[Array, "number"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return reward and discount."""
        distance = jnp.linalg.norm(achieved - desired)
        reward = -distance if self.dense else -(distance > self.threshold).astype(jnp.float32)
        return reward, jnp.ones(())


@dataclasses.dataclass(frozen=True)
class MazeJudge:
    """Judge of mazes: reward 1 within 0.45 m, else 0, or, if ``dense``, exp(-distance). With
    ``ends`` arriving ends the episode."""

    dense: bool
    ends: bool

    def __call__(
        self, achieved: Float[Array, "number"], desired: Float[Array, "number"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return reward and discount."""
        distance = jnp.linalg.norm(achieved - desired)
        arrived = (distance <= MAZE_GOAL_RADIUS).astype(jnp.float32)
        return jnp.exp(-distance) if self.dense else arrived, 1.0 - arrived * float(self.ends)


def find_judge(config: dict[str, Any], obs: spaces.Space[Any]) -> GoalJudge | None:
    """Return the judge of a pool made with ``config``; None if it has no goals or no judge here."""
    if not has_goals(obs):
        return None
    dense = config.get("reward_type") == "dense"
    if "distance_threshold" in config and config.get("hand_task", "reach") == "reach":
        return ReachJudge(float(config["distance_threshold"]), dense)
    if "continuing_task" in config:
        return MazeJudge(dense, not config["continuing_task"])
    return None


def success_channel(judge: GoalJudge | None, arrays: dict[str, Any]) -> str:
    """Return the declaration of the success channel of a pool with goals, as a user would type it;
    "" if it has none."""
    known = [said for name, said in SUCCESS_CHANNELS.items() if f"info:{name}" in arrays]
    return known[0] if judge is not None and known else ""
