"""Bandits whose arms are drawn anew each episode, for agents that learn within an episode.

When an episode begins, each arm gets a win probability drawn uniformly from [0, 1]. A pull pays 1
with that probability and 0 otherwise; the episode ends after a fixed number of pulls. The
observation is always 0, so a good agent must remember its pulls and their rewards (Duan 2016,
"RL^2", arXiv:1611.02779, section 3.1). The best possible mean return is known:
:func:`bayes_optimal_return`.

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
NAME_PATTERN = re.compile(r"(\d+)-arms-(\d+)-pulls")


class BanditState(eqx.Module):
    """The win probability of every arm, and the number of pulls done."""

    chance: Float[Array, "arm"]
    pulls: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class Bandit:
    """A bandit, as a :class:`sterling.envs.traced_world.Task`."""

    arms: int
    pulls: int

    @property
    def obs(self) -> spaces.Box:
        """A constant 0: nothing is observed."""
        return spaces.Box(0.0, 0.0, (1,), np.float32)

    @property
    def action(self) -> spaces.Discrete:
        """The arm to pull."""
        return spaces.Discrete(self.arms)

    def reset(self, key: Key[Array, ""]) -> tuple[BanditState, Float[Array, "1"]]:
        """Draw the win probability of every arm."""
        chance = jax.random.uniform(key, (self.arms,))
        return BanditState(chance, jnp.zeros((), jnp.int32)), jnp.zeros(1)

    def step(
        self, state: BanditState, action: Array, key: Key[Array, ""]
    ) -> tuple[BanditState, Float[Array, "1"], Array, Array, Array]:
        """Pull an arm; its reward is 1 or 0."""
        paid = jax.random.bernoulli(key, state.chance[action]).astype(jnp.float32)
        moved = BanditState(state.chance, state.pulls + 1)
        return moved, jnp.zeros(1), paid, moved.pulls >= self.pulls, jnp.zeros((), bool)


def knows(name: str) -> bool:
    """Whether ``name`` is ``K-arms-N-pulls`` with at least one arm and one pull."""
    found = NAME_PATTERN.fullmatch(name)
    return bool(found and min(map(int, found.groups())) > 0)


def names() -> list[str]:
    """Return example names; other numbers of arms and pulls work too."""
    return list(NAMES)


def make(name: str) -> tuple[Bandit, int]:
    """Return the bandit called ``name``, and 0: it has no time limit beside its pulls."""
    found = NAME_PATTERN.fullmatch(name)
    if not found:
        raise Mistake(
            f"Unknown bandit {name!r}. Write K-arms-N-pulls, for instance 5-arms-10-pulls."
        )
    return Bandit(*map(int, found.groups())), 0


def bayes_optimal_return(arms: int, pulls: int) -> float:
    """Return the highest mean return of any policy, by dynamic programming over beliefs.

    A belief is the number of wins and losses of every arm. Work and memory grow steeply with both
    arguments; 5 arms and 10 pulls take seconds.
    """

    @cache
    def value(known: tuple[tuple[int, int], ...], left: int) -> float:
        if not left:
            return 0.0
        best = 0.0
        for arm in {known.index(each) for each in known}:  # arms with equal counts are equivalent
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
