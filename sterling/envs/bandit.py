"""Bandits that are drawn anew each episode: worlds for agents that learn within an episode.

Every arm pays 1 with a chance of its own, drawn uniformly from [0, 1] when an episode begins, and
otherwise 0; after some pulls the episode ends. Nothing is observed (a constant 0): who does well
must remember what was done and what came of it (Duan 2016, "RL^2", arXiv:1611.02779, section 3.1).
The best that anybody can do on average is known: :func:`bayes`.

Names: ``K-arms-N-pulls``, for instance ``5-arms-10-pulls``.
"""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, Int, Key

from sterling.types import Mistake

NAMES = ("2-arms-10-pulls", "5-arms-10-pulls", "5-arms-100-pulls", "10-arms-100-pulls")
FORM = re.compile(r"(\d+)-arms-(\d+)-pulls")


class BanditState(eqx.Module):
    """What every arm pays on average, and how many pulls are done."""

    chance: Float[Array, "arm"]
    pulls: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class Bandit:
    """A row of arms, a :class:`sterling.envs.traced.Task`."""

    arms: int
    pulls: int

    @property
    def obs(self) -> spaces.Box:
        """Nothing: always 0."""
        return spaces.Box(0.0, 0.0, (1,), np.float32)

    @property
    def action(self) -> spaces.Discrete:
        """Which arm to pull."""
        return spaces.Discrete(self.arms)

    def reset(self, key: Key[Array, ""]) -> tuple[BanditState, Float[Array, "1"]]:
        """Draw the arms."""
        chance = jax.random.uniform(key, (self.arms,))
        return BanditState(chance, jnp.zeros((), jnp.int32)), jnp.zeros(1)

    def step(
        self, state: BanditState, action: Array, key: Key[Array, ""]
    ) -> tuple[BanditState, Float[Array, "1"], Array, Array, Array]:
        """Pull an arm."""
        paid = jax.random.bernoulli(key, state.chance[action]).astype(jnp.float32)
        moved = BanditState(state.chance, state.pulls + 1)
        return moved, jnp.zeros(1), paid, moved.pulls >= self.pulls, jnp.zeros((), bool)


def knows(name: str) -> bool:
    """Whether ``name`` is of the form, with at least one arm and one pull."""
    found = FORM.fullmatch(name)
    return bool(found and min(map(int, found.groups())) > 0)


def names() -> list[str]:
    """Some of them: numbers may be others."""
    return list(NAMES)


def make(name: str) -> tuple[Bandit, int]:
    """The bandit called ``name``, which has no limit but its pulls."""
    found = FORM.fullmatch(name)
    if not found:
        raise Mistake(f"bandit {name!r} is not known; write for instance '5-arms-10-pulls'")
    return Bandit(*map(int, found.groups())), 0


def bayes(arms: int, pulls: int) -> float:
    """The largest mean return that any policy can have, by dynamic programming over what can be
    known: successes and failures of every arm. Work and memory grow steeply with both numbers; 5
    arms and 10 pulls take seconds."""

    @cache
    def value(known: tuple[tuple[int, int], ...], left: int) -> float:
        if not left:
            return 0.0
        best = 0.0
        for arm in {known.index(each) for each in known}:  # arms of which the same is known are one
            won, lost = known[arm]
            chance = (won + 1) / (won + lost + 2)  # the mean of Beta(won + 1, lost + 1)
            rest = known[:arm] + known[arm + 1 :]
            after: Any = [
                tuple(sorted((*rest, each))) for each in ((won + 1, lost), (won, lost + 1))
            ]
            gain = chance * (1.0 + value(after[0], left - 1))
            best = max(best, gain + (1.0 - chance) * value(after[1], left - 1))
        return best

    return value(((0, 0),) * arms, pulls)
