"""The probe task of levels: the right answer is known in every level, also in those held out.

  levels      a level is a number u with 1/2 <= |u| <= 1; an episode has two steps, and the second
              pays u for action 1 and -u for action 0

The observation is u and whether one step is done. So the second step has value |u|, the first gamma
|u|, and the right action has u's sign. There are 16 levels in training and up to 100 others in
evaluation. The channel ``begun`` reports u with every step: code that starts an episode in the
wrong level, or mixes levels up, shows in its rows.

``levels-continuous`` has one action a in [-1, 1], and the second step pays |u| - (a - u/2)^2: the
values are the same, and the right action is u/2.

``levels-hidden`` and ``levels-hidden-continuous`` show 0 in place of u. A policy of the observation
can then do no better than the action that is best on average; a policy that adapts to a level by a
few of its episodes can do as well as one that observes u (:meth:`LevelProbe.best_returns`).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Key

from sterling import random_keys
from sterling.problem.channels import Channel

NAMES = ("levels", "levels-continuous", "levels-hidden", "levels-hidden-continuous")


class LevelAnswers(NamedTuple):
    """Observations with their optimal value and right action."""

    obs: Float[np.ndarray, "row 2"]
    value: Float[np.ndarray, "row"]
    action: Float[np.ndarray, "row"]  # 0 or 1; or a number in [-1, 1]
    decides: Bool[np.ndarray, "row"]  # whether the action matters in this row


class LevelState(eqx.Module):
    """The level, and whether one step is done."""

    level: Float[Array, ""]
    second: Bool[Array, ""]


@dataclasses.dataclass(frozen=True)
class LevelProbe:
    """The level probe, as a :class:`sterling.envs.traced_world.Task` with levels."""

    continuous: bool = False
    hidden: bool = False
    levels: ClassVar = 16
    obs: ClassVar = spaces.Box(-1.0, 1.0, (2,), np.float32)
    channels: ClassVar = {"begun": Channel(reduce="last")}

    @property
    def action(self) -> spaces.Space[Any]:
        """Two choices, or one number in [-1, 1]."""
        return spaces.Box(-1.0, 1.0, (1,), np.float32) if self.continuous else spaces.Discrete(2)

    def level(self, key: Key[Array, ""]) -> Float[Array, ""]:
        """Draw a level, positive or negative with equal probability."""
        size = jax.random.uniform(random_keys.fold(key, "size"), (), minval=0.5)
        return jnp.where(jax.random.bernoulli(random_keys.fold(key, "side")), size, -size)

    def edit(self, level: Float[Array, ""], key: Key[Array, ""]) -> Float[Array, ""]:
        """Return a level whose size differs by at most 0.1, with a random sign."""
        change = jax.random.uniform(random_keys.fold(key, "change"), (), minval=-0.1, maxval=0.1)
        size = jnp.clip(jnp.abs(level) + change, 0.5, 1.0)
        return jnp.where(jax.random.bernoulli(random_keys.fold(key, "side")), size, -size)

    def begin(
        self, level: Float[Array, ""], key: Key[Array, ""]
    ) -> tuple[LevelState, Float[Array, "2"]]:
        """Start an episode in a level."""
        state = LevelState(level, jnp.zeros((), bool))
        return state, self._observe(state)

    def step(self, state: LevelState, action: Array, key: Key[Array, ""]) -> tuple[Any, ...]:
        """Step; the second step pays and ends the episode."""
        level, moved = state.level, LevelState(state.level, jnp.ones((), bool))
        if self.continuous:
            paid = jnp.abs(level) - jnp.square(action[0] - 0.5 * level)
        else:
            paid = jnp.where(action == 1, level, -level)
        reward = jnp.where(state.second, paid, 0.0)
        never = jnp.zeros((), bool)
        return moved, self._observe(moved), reward, state.second, never, {"begun": level}

    def answers(self, levels: Float[np.ndarray, "level"], gamma: float) -> LevelAnswers:
        """Return what an algorithm with discount ``gamma`` per step must find in these levels."""
        second = np.repeat([False, True], len(levels))
        level = np.tile(levels, 2).astype(np.float32)
        obs = np.stack([level, second.astype(np.float32)], 1)
        value = np.abs(level) * np.where(second, 1.0, gamma)
        right = 0.5 * level if self.continuous else level > 0.0
        return LevelAnswers(obs, value.astype(np.float32), right.astype(np.float32), second)

    def best_returns(self, levels: Float[np.ndarray, "level"]) -> tuple[float, float]:
        """Return the largest mean return in these levels with one action for all of them, and with
        the right action in each.

        The first is |mean u| for two choices. For a continuous action the best one is mean u / 2,
        and its return is lower than the second by a quarter of the variance of u.
        """
        known = float(np.abs(levels).mean())
        alike = known - float(np.var(levels)) / 4.0 if self.continuous else abs(levels.mean())
        return float(alike), known

    def _observe(self, state: LevelState) -> Float[Array, "2"]:
        level = jnp.zeros(()) if self.hidden else state.level
        return jnp.stack([level, state.second.astype(jnp.float32)])


def make_level_probe(name: str) -> LevelProbe:
    """Return the probe called ``name``, one of ``NAMES``."""
    return LevelProbe("continuous" in name, "hidden" in name)
