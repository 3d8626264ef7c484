"""Flipping bits: a world of goals that chance does not find (Andrychowicz 2017, section 3.1).

An episode begins with N bits and N wanted ones, all by chance; an action flips one of the bits.
Every step brings -1, but 0 the one after which the bits are as wanted, which ends the episode; it
is cut after N steps. So the best policy flips each bit that differs once, and its return is 1 less
than their number, below zero: on average 1 - N/2 - 2^(1 - N), because who begins with no
difference must flip a bit twice.

Names: ``N``, bits, for instance ``15``; at least 2.
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

from sterling import keys
from sterling.channels import Channel
from sterling.goals import ACHIEVED, DESIRED, OBSERVATION
from sterling.types import Mistake, Obs

NAMES = ("8", "15", "30")
FORM = re.compile(r"[1-9]\d*")


class FlipState(eqx.Module):
    """The bits, each 0 or 1, and those that are wanted."""

    bits: Float[Array, "bit"]
    wanted: Float[Array, "bit"]


@dataclasses.dataclass(frozen=True)
class Flip:
    """Bits to be flipped, a :class:`sterling.envs.traced.Task` with goals."""

    bits: int
    channels: ClassVar = {"success": Channel(reduce="last", better=1, within=(0.0, 1.0))}

    @property
    def obs(self) -> spaces.Dict:
        """The bits, twice, and those that are wanted."""
        bits = spaces.Box(0.0, 1.0, (self.bits,), np.float32)
        return spaces.Dict(dict.fromkeys((OBSERVATION, ACHIEVED, DESIRED), bits))

    @property
    def action(self) -> spaces.Discrete:
        """Which bit is flipped."""
        return spaces.Discrete(self.bits)

    @property
    def best(self) -> float:
        """The mean return of the best policy."""
        return 1.0 - self.bits / 2.0 - 2.0 ** (1 - self.bits)

    def reset(self, key: Key[Array, ""]) -> tuple[FlipState, Obs]:
        """Bits and wanted bits, each as likely 0 as 1."""
        bits, wanted = (
            jax.random.bernoulli(each, shape=(self.bits,)).astype(jnp.float32)
            for each in keys.deal(key, "bits", 2)
        )
        state = FlipState(bits, wanted)
        return state, _seen(state)

    def step(self, state: FlipState, action: Int[Array, ""], key: Key[Array, ""]) -> Any:
        """Flip one."""
        flipped = jax.nn.one_hot(action, self.bits)
        state = FlipState(jnp.abs(state.bits - flipped), state.wanted)
        reward, discount = self.judge(state.bits, state.wanted)
        never, there = jnp.zeros((), bool), discount == 0.0
        return state, _seen(state), reward, there, never, {"success": there.astype(jnp.float32)}

    def judge(
        self, achieved: Float[Array, "bit"], desired: Float[Array, "bit"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """-1, and on; 0, and the end, where all bits are as wanted."""
        away = jnp.any(achieved != desired).astype(jnp.float32)
        return -away, away


def _seen(state: FlipState) -> Obs:
    return {OBSERVATION: state.bits, ACHIEVED: state.bits, DESIRED: state.wanted}


def names() -> list[str]:
    """Some of them: numbers may be others."""
    return list(NAMES)


def knows(name: str) -> bool:
    """Whether ``name`` is a number of bits."""
    return FORM.fullmatch(name) is not None and int(name) > 1


def make(name: str) -> tuple[Flip, int]:
    """The world called ``name``, and its time limit."""
    if not knows(name):
        raise Mistake(f"{name} are no bits to flip; write a number of at least 2, for instance 15")
    return Flip(int(name)), int(name)
