"""How EnvPool's worlds with goals judge them: the rules of Gymnasium-Robotics, in JAX.

A test holds them against the rewards that the simulators answer. Worlds whose goals are turned as
well as moved (a hand's block, egg and pen) have none here.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from gymnasium import spaces
from jaxtyping import Array, Float

from sterling.goals import Judge, has_goals

NEAR = 0.45  # metres, in mazes
SUCCESS = {"is_success": "is_success:last:more:0..1", "success": "success:max:more:0..1"}


@dataclasses.dataclass(frozen=True)
class Reach:
    """Of the Fetch robot and of a hand that reaches: -1 beyond ``threshold``, or, ``dense``, the
    distance with a minus; nothing ends an episode."""

    threshold: float
    dense: bool

    def __call__(
        self, achieved: Float[Array, "number"], desired: Float[Array, "number"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Reward and discount."""
        away = jnp.linalg.norm(achieved - desired)
        reward = -away if self.dense else -(away > self.threshold).astype(jnp.float32)
        return reward, jnp.ones(())


@dataclasses.dataclass(frozen=True)
class Arrive:
    """Of mazes: 1 within 0.45 m, or, ``dense``, exp(-distance); ``ends``: that ends an episode."""

    dense: bool
    ends: bool

    def __call__(
        self, achieved: Float[Array, "number"], desired: Float[Array, "number"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Reward and discount."""
        away = jnp.linalg.norm(achieved - desired)
        there = (away <= NEAR).astype(jnp.float32)
        return jnp.exp(-away) if self.dense else there, 1.0 - there * float(self.ends)


def judge_of(config: dict[str, Any], obs: spaces.Space[Any]) -> Judge | None:
    """How a pool that was made so judges goals; None where it has none or its rule is not here."""
    if not has_goals(obs):
        return None
    dense = config.get("reward_type") == "dense"
    if "distance_threshold" in config and config.get("hand_task", "reach") == "reach":
        return Reach(float(config["distance_threshold"]), dense)
    if "continuing_task" in config:
        return Arrive(dense, not config["continuing_task"])
    return None


def success(judge: Judge | None, arrays: dict[str, Any]) -> str:
    """What a pool with goals reports unless the user says otherwise, as a user would type it."""
    known = [said for name, said in SUCCESS.items() if f"info:{name}" in arrays]
    return known[0] if judge is not None and known else ""
