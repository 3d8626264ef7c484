"""The probe world of levels: what is right is known in every level, those held out included.

    levels      a level is a number u with 1/2 <= |u| <= 1; an episode has two steps, and the second
                pays u for action 1 and -u for action 0

Seen are u and whether one step is done. So |u| is the value of the second step, gamma |u| that of
the first, and the right action has u's sign. There are 16 levels in training, up to 100 others are
judged in. The channel ``begun`` reports u with every step: whoever begins an episode in a level it
should not, or takes one level for another, is found out by its rows.

Named ``levels-continuous`` it has one action a in [-1, 1], and the second step pays
|u| - (a - u/2)^2: the same values, and u/2 is the right action.
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

from sterling import keys
from sterling.channels import Channel

NAMES = ("levels", "levels-continuous")


class LevelAnswers(NamedTuple):
    """The optimal value of observations, and the right action where one is."""

    obs: Float[np.ndarray, "row 2"]
    value: Float[np.ndarray, "row"]
    action: Float[np.ndarray, "row"]  # 0 or 1; or a number in [-1, 1]
    decides: Bool[np.ndarray, "row"]  # where it matters what is done


class LevelState(eqx.Module):
    """The level, and whether one step is done."""

    level: Float[Array, ""]
    second: Bool[Array, ""]


@dataclasses.dataclass(frozen=True)
class LevelProbe:
    """The probe world, a :class:`sterling.envs.traced.Task` with levels."""

    continuous: bool = False
    levels: ClassVar = 16
    obs: ClassVar = spaces.Box(-1.0, 1.0, (2,), np.float32)
    channels: ClassVar = {"begun": Channel(reduce="last")}

    @property
    def action(self) -> spaces.Space[Any]:
        """Two choices, or one number in [-1, 1]."""
        return spaces.Box(-1.0, 1.0, (1,), np.float32) if self.continuous else spaces.Discrete(2)

    def level(self, key: Key[Array, ""]) -> Float[Array, ""]:
        """Any level, one side as likely as the other."""
        size = jax.random.uniform(keys.fold(key, "size"), (), minval=0.5)
        return jnp.where(jax.random.bernoulli(keys.fold(key, "side")), size, -size)

    def edit(self, level: Float[Array, ""], key: Key[Array, ""]) -> Float[Array, ""]:
        """A level of either side, of a size that differs by up to 0.1."""
        change = jax.random.uniform(keys.fold(key, "change"), (), minval=-0.1, maxval=0.1)
        size = jnp.clip(jnp.abs(level) + change, 0.5, 1.0)
        return jnp.where(jax.random.bernoulli(keys.fold(key, "side")), size, -size)

    def begin(
        self, level: Float[Array, ""], key: Key[Array, ""]
    ) -> tuple[LevelState, Float[Array, "2"]]:
        """Start an episode in a level."""
        state = LevelState(level, jnp.zeros((), bool))
        return state, _seen(state)

    def step(self, state: LevelState, action: Array, key: Key[Array, ""]) -> tuple[Any, ...]:
        """Move; the second step pays and ends."""
        level, moved = state.level, LevelState(state.level, jnp.ones((), bool))
        if self.continuous:
            paid = jnp.abs(level) - jnp.square(action[0] - 0.5 * level)
        else:
            paid = jnp.where(action == 1, level, -level)
        reward = jnp.where(state.second, paid, 0.0)
        never = jnp.zeros((), bool)
        return moved, _seen(moved), reward, state.second, never, {"begun": level}

    def answers(self, levels: Float[np.ndarray, "level"], gamma: float) -> LevelAnswers:
        """What an algorithm with discount ``gamma`` per step must find in these levels."""
        second = np.repeat([False, True], len(levels))
        level = np.tile(levels, 2).astype(np.float32)
        obs = np.stack([level, second.astype(np.float32)], 1)
        value = np.abs(level) * np.where(second, 1.0, gamma)
        right = 0.5 * level if self.continuous else level > 0.0
        return LevelAnswers(obs, value.astype(np.float32), right.astype(np.float32), second)


def _seen(state: LevelState) -> Float[Array, "2"]:
    return jnp.stack([state.level, state.second.astype(jnp.float32)])


def level_probe(name: str) -> LevelProbe:
    """The probe world called ``name``, one of ``NAMES``."""
    return LevelProbe(name.endswith("-continuous"))
