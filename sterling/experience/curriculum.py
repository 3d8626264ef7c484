"""Which difficulty is asked next: a distribution over arms that follows what is found out."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from sterling.naming import hint
from sterling.types import Mistake

KINDS = ("uniform", "advantage", "learnable")
MEMORY = 0.9  # how much of an arm's average each new batch leaves
HEAT = 0.2  # of the choice between arms by their advantage (DUMP)


class Curriculum(eqx.Module):
    """What is known of every arm.

    ``uniform`` asks all alike. ``advantage`` is DUMP's bandit (Wang 2025): arms whose answers have
    large absolute advantages, plus sqrt(2 ln n / n_arm) for those seldom asked. ``learnable`` asks
    in proportion to p (1 - p), p the share of answers that were right: what is always or never
    solved teaches nothing (Foster 2025).

    What was right is known as soon as it is said (:meth:`saw`); how large advantages were only once
    a batch was learned from (:meth:`heed`). Rows of scenes that failed say nothing of an arm.
    """

    value: Float[Array, "seed arm"]  # running mean of |advantage|, or of being right
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

    def saw(
        self, right: Float[np.ndarray, "seed arm"], sound: Float[np.ndarray, "seed arm"]
    ) -> Curriculum:
        """Learn from all answers that were given, whether or not a batch takes them: how many were
        ``right``, of how many that did not fail."""
        if self.kind != "learnable":
            return self
        return self._told(jnp.asarray(right), jnp.asarray(sound))

    def heed(
        self,
        asked: Int[Array, "seed row"],
        advantage: Float[Array, "seed row"],
        flat: Float[Array, "seed arm"],
    ) -> Curriculum:
        """Learn from a batch that was learned from: each row's arm (-1: none) and absolute
        ``advantage``.

        ``flat`` counts the answers of each arm that were left out of the batch because all of their
        group were worth the same. The learner never saw them and learned nothing from them, so they
        count as advantages of 0, which they have by a group's baseline.
        """
        if self.kind != "advantage":
            return self
        hot = jax.nn.one_hot(asked, self.value.shape[1])
        return self._told(jnp.einsum("sr,sra->sa", advantage, hot), jnp.sum(hot, 1) + flat)

    def _told(self, total: Float[Array, "seed arm"], seen: Float[Array, "seed arm"]) -> Curriculum:
        mean = total / jnp.maximum(seen, 1.0)
        value = jnp.where(seen > 0, MEMORY * self.value + (1.0 - MEMORY) * mean, self.value)
        return Curriculum(value, self.count + seen, self.kind)


@partial(jax.jit, static_argnums=2)
def _chosen(
    keys: Key[Array, "seed"], chances: Float[Array, "seed arm"], count: int
) -> Int[Array, "seed {count}"]:
    def pick(key: Array, chance: Array) -> Array:
        return jax.random.choice(key, chance.size, (count,), p=chance)

    return jax.vmap(pick)(keys, chances)
