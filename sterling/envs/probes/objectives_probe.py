"""The probe task of two objectives with a preference between them that changes every episode.

  objectives    gain (more is better) and cost (less is better); w in [0, 1] is observed, and
                the reward is  w gain - (1 - w) cost

Action 1 has gain 1 and cost 1/2, action 0 has neither. So action 1 is right where w > 1/3 and is
worth (3 w - 1) / 2 there; elsewhere action 0 is right and worth 0. In ``objectives-continuous`` an
action a in [-1, 1] has gain 1 - (a - 1/2)^2 and cost (a + 1/2)^2: right is a = w - 1/2, worth w^2.

w is drawn uniformly each episode. So a policy that is always right has mean gain 2/3, mean cost 1/3
and mean return 1/3, in both forms. The preference (w, 1 - w) is the entry ``preference`` of the
observation; gain and cost are the parts of the channel ``objectives``.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, Key

from sterling.problem.channels import Channel

NAMES = ("objectives", "objectives-continuous")
PREFERENCE = "preference"
# the best policy's means
BEST_MEANS = {"objectives.gain": 2 / 3, "objectives.cost": 1 / 3, "return": 1 / 3}


class ObjectiveAnswers(NamedTuple):
    """Preferences with their optimal value and right action."""

    obs: dict[str, Float[np.ndarray, "row 2"]]
    value: Float[np.ndarray, "row"]
    action: Float[np.ndarray, "row"]  # 0 or 1; or a number in [-1, 1]


@dataclasses.dataclass(frozen=True)
class ObjectivesProbe:
    """The objectives probe, as a :class:`sterling.envs.traced_world.Task`; its state is the
    preference."""

    continuous: bool = False
    obs: ClassVar = spaces.Dict({PREFERENCE: spaces.Box(0.0, 1.0, (2,), np.float32)})
    channels: ClassVar = {"objectives": Channel(parts=("gain", "cost"), directions=(1, -1))}

    @property
    def action(self) -> spaces.Space[Any]:
        """Two choices, or one number in [-1, 1]."""
        return spaces.Box(-1.0, 1.0, (1,), np.float32) if self.continuous else spaces.Discrete(2)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, "2"], dict[str, Float[Array, "2"]]]:
        """Draw a preference."""
        weight = jax.random.uniform(key)
        preference = jnp.stack([weight, 1.0 - weight])
        return preference, {PREFERENCE: preference}

    def step(self, state: Float[Array, "2"], action: Array, key: Key[Array, ""]) -> tuple[Any, ...]:
        """Pay the weighted sum of gain and cost; the episode ends."""
        if self.continuous:
            gain, cost = 1.0 - jnp.square(action[0] - 0.5), jnp.square(action[0] + 0.5)
        else:
            gain = (action == 1).astype(jnp.float32)
            cost = 0.5 * gain
        reward = state[0] * gain - state[1] * cost
        found = {"objectives": jnp.stack([gain, cost])}
        return state, {PREFERENCE: state}, reward, jnp.ones((), bool), jnp.zeros((), bool), found

    def answers(self) -> ObjectiveAnswers:
        """Return what an algorithm must find for preferences from one end to the other.

        With discrete actions, preferences for which both actions are nearly equal are left out.
        """
        weight = np.array([0.02, 0.1, 0.2, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98], np.float32)
        obs = {PREFERENCE: np.stack([weight, 1.0 - weight], 1)}
        if self.continuous:
            return ObjectiveAnswers(obs, weight**2, weight - 0.5)
        right = (weight > 1 / 3).astype(np.float32)
        return ObjectiveAnswers(obs, np.maximum(1.5 * weight - 0.5, 0.0), right)


def make_objectives_probe(name: str) -> ObjectivesProbe:
    """Return the probe called ``name``, one of ``NAMES``."""
    return ObjectivesProbe(name.endswith("-continuous"))
