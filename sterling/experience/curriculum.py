"""Which difficulty is asked next: a distribution over arms that follows the learner's signals."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from sterling.naming import hint
from sterling.types import AnyArray, Mistake

KINDS = ("uniform", "advantage", "learnable")
MEMORY = 0.9  # how much of an arm's average each new batch leaves
HEAT = 0.2  # of the choice between arms by their advantage (DUMP)


class Curriculum(eqx.Module):
    """What is known of every arm.

    ``uniform`` asks all alike. ``advantage`` is DUMP's bandit (Wang 2025): arms whose answers have
    large absolute advantages, plus sqrt(2 ln n / n_arm) for those seldom asked. ``learnable`` asks
    in proportion to p (1 - p), p the share of answers that were right: what is always or never
    solved teaches nothing (Foster 2025).
    """

    value: Float[Array, "seed arm"]  # running mean of |advantage|, or of success
    count: Float[Array, "seed arm"]  # answers seen
    kind: str = eqx.field(static=True)

    @classmethod
    def create(cls, kind: str, seeds: int, arms: int) -> Curriculum:
        """Nothing known; Mistake for a kind that is not known."""
        if kind not in KINDS:
            raise Mistake(f"curriculum {kind!r} is not known{hint(kind, KINDS, ', '.join(KINDS))}")
        start = 0.5 if kind == "learnable" else 0.0
        return cls(jnp.full((seeds, arms), start), jnp.zeros((seeds, arms)), kind)

    def chances(self) -> Float[Array, "seed arm"]:
        """How likely each arm is asked."""
        arms = self.value.shape[1]
        even = jnp.full_like(self.value, 1.0 / arms)
        if self.kind == "uniform" or arms == 1:
            return even
        if self.kind == "learnable":
            worth = self.value * (1.0 - self.value) + 0.01
            return worth / jnp.sum(worth, 1, keepdims=True)
        total = jnp.sum(self.count, 1, keepdims=True)
        bonus = jnp.sqrt(2.0 * jnp.log(total + 1.0) / (self.count + 1.0))
        return jax.nn.softmax((self.value + bonus) / HEAT, 1)

    def choose(self, keys: Key[Array, "seed"], count: int) -> Int[np.ndarray, "seed {count}"]:
        """An arm for each of ``count`` questions."""
        return np.asarray(_chosen(keys, self.chances(), count), np.int32)

    def heed(self, asked: Int[Array, "seed row"], samples: Mapping[str, AnyArray]) -> Curriculum:
        """Learn from the latest batch: each row's arm (-1: none), and ``samples`` with its
        "advantage" (absolute) and its "score" (reward), ``(seed, row)``."""
        name = "score" if self.kind == "learnable" else "advantage"
        if self.kind == "uniform" or name not in samples:
            return self
        told = jnp.asarray(samples[name])
        hot = jax.nn.one_hot(asked, self.value.shape[1])
        seen = jnp.sum(hot, 1)
        mean = jnp.einsum("sr,sra->sa", told, hot) / jnp.maximum(seen, 1.0)
        value = jnp.where(seen > 0, MEMORY * self.value + (1.0 - MEMORY) * mean, self.value)
        return Curriculum(value, self.count + seen, self.kind)


@partial(jax.jit, static_argnums=2)
def _chosen(
    keys: Key[Array, "seed"], chances: Float[Array, "seed arm"], count: int
) -> Int[Array, "seed {count}"]:
    def pick(key: Array, chance: Array) -> Array:
        return jax.random.choice(key, chance.size, (count,), p=chance)

    return jax.vmap(pick)(keys, chances)
