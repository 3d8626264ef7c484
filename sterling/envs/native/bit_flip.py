"""Bit flipping: a goal task that random actions do not solve (Andrychowicz 2017, section 3.1).

An episode begins with N random bits and N random goal bits; an action flips one bit. Every step
pays -1, except 0 when all bits equal the goal, which ends the episode; the time limit is N steps.
The best policy flips each differing bit once, so its return is 1 minus their number. If no bit
differs at the start, it must flip one bit twice. Its mean return is 1 - N/2 - 2^(1 - N).

Names: ``N``, the number of bits, at least 2, for instance ``15``.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.problem.channels import Channel
from sterling.problem.goal_obs import ACHIEVED, DESIRED, OBSERVATION
from sterling.types import Mistake, Obs

NAMES = ("8", "15", "30")
NAME_PATTERN = re.compile(r"[1-9]\d*")


class FlipState(eqx.Module):
    """The bits and the goal bits, each 0 or 1."""

    bits: Float[Array, "bit"]
    wanted: Float[Array, "bit"]


@dataclasses.dataclass(frozen=True)
class Flip:
    """Bit flipping, as a :class:`sterling.envs.traced_world.Task` with goals."""

    bits: int
    channels: ClassVar = {"success": Channel(reduce="last", better=1, within=(0.0, 1.0))}

    @property
    def obs(self) -> spaces.Dict:
        """The bits, as observation and as achieved goal, and the goal bits."""
        bits = spaces.Box(0.0, 1.0, (self.bits,), np.float32)
        return spaces.Dict(dict.fromkeys((OBSERVATION, ACHIEVED, DESIRED), bits))

    @property
    def action(self) -> spaces.Discrete:
        """The bit to flip."""
        return spaces.Discrete(self.bits)

    @property
    def best(self) -> float:
        """The mean return of the best policy."""
        return 1.0 - self.bits / 2.0 - 2.0 ** (1 - self.bits)

    def reset(self, key: Key[Array, ""]) -> tuple[FlipState, Obs]:
        """Draw the bits and the goal bits, 0 and 1 equally likely."""
        bits, wanted = (
            jax.random.bernoulli(each, shape=(self.bits,)).astype(jnp.float32)
            for each in random_keys.split(key, "bits", 2)
        )
        state = FlipState(bits, wanted)
        return state, _observe(state)

    def step(self, state: FlipState, action: Int[Array, ""], key: Key[Array, ""]) -> Any:
        """Flip one bit."""
        flipped = jax.nn.one_hot(action, self.bits)
        state = FlipState(jnp.abs(state.bits - flipped), state.wanted)
        reward, discount = self.judge(state.bits, state.wanted)
        never, reached = jnp.zeros((), bool), discount == 0.0
        channels = {"success": reached.astype(jnp.float32)}
        return state, _observe(state), reward, reached, never, channels

    def judge(
        self, achieved: Float[Array, "bit"], desired: Float[Array, "bit"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return reward and discount: (-1, 1), or (0, 0) where all bits equal the goal."""
        differs = jnp.any(achieved != desired).astype(jnp.float32)
        return -differs, differs


def _observe(state: FlipState) -> Obs:
    return {OBSERVATION: state.bits, ACHIEVED: state.bits, DESIRED: state.wanted}


def names() -> list[str]:
    """Return example names; any other number of bits works too."""
    return list(NAMES)


def knows(name: str) -> bool:
    """Whether ``name`` is a number of bits, at least 2."""
    return NAME_PATTERN.fullmatch(name) is not None and int(name) > 1


def make(name: str) -> tuple[Flip, int]:
    """Return the task called ``name`` and its time limit in steps."""
    if not knows(name):
        raise Mistake(
            f"Unknown flip {name!r}. Write the number of bits, at least 2, for instance 15."
        )
    return Flip(int(name)), int(name)
