"""A curriculum: the distribution over difficulty levels (arms) from which questions are drawn."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from sterling.lookup.name_suggestions import did_you_mean
from sterling.types import Mistake

KINDS = ("uniform", "advantage", "learnable")
DECAY = 0.9  # weight of the old average when a new batch arrives
TEMPERATURE = 0.2  # softmax temperature over the arms' advantages (DUMP)


class Curriculum(eqx.Module):
    """Statistics of every arm, and how they turn into probabilities.

    ``uniform`` gives all arms the same probability. ``advantage`` is DUMP's bandit (Wang 2025):
    arms with large absolute advantages, plus sqrt(2 ln n / n_arm) for arms rarely asked.
    ``learnable`` draws in proportion to p (1 - p), with p the share of right answers: a level that
    is always or never solved teaches nothing (Foster 2025).

    Whether answers are right is known at once (:meth:`record_answers`); advantages only after
    learning from the batch (:meth:`heed`). Rows of failed scenes count for no arm.
    """

    value: Float[Array, "seed arm"]  # running mean of |advantage|, or of the share of right answers
    count: Float[Array, "seed arm"]  # answers seen
    kind: str = eqx.field(static=True)

    @classmethod
    def create(cls, kind: str, seeds: int, arms: int) -> Curriculum:
        """Create a curriculum without data; Mistake for an unknown ``kind``."""
        if kind not in KINDS:
            near = did_you_mean(kind, KINDS, f"use one of {', '.join(KINDS)}")
            raise Mistake(f"unknown curriculum {kind!r}{near}")
        start = 0.5 if kind == "learnable" else 0.0
        return cls(jnp.full((seeds, arms), start), jnp.zeros((seeds, arms)), kind)

    def probabilities(self) -> Float[Array, "seed arm"]:
        """Return the probability of each arm."""
        arms = self.value.shape[1]
        even = jnp.full_like(self.value, 1.0 / arms)
        if self.kind == "uniform" or arms == 1:
            return even
        if self.kind == "learnable":
            worth = self.value * (1.0 - self.value) + 0.01
            return worth / jnp.sum(worth, 1, keepdims=True)
        total = jnp.sum(self.count, 1, keepdims=True)
        bonus = jnp.sqrt(2.0 * jnp.log(total + 1.0) / (self.count + 1.0))
        return jax.nn.softmax((self.value + bonus) / TEMPERATURE, 1)

    def choose(self, keys: Key[Array, "seed"], count: int) -> Int[np.ndarray, "seed {count}"]:
        """Draw an arm for each of ``count`` questions."""
        return np.asarray(_sample_arms(keys, self.probabilities(), count), np.int32)

    def record_answers(
        self, right: Float[np.ndarray, "seed arm"], sound: Float[np.ndarray, "seed arm"]
    ) -> Curriculum:
        """Update with all answers given, whether or not a batch uses them.

        ``right`` counts the right answers of each arm, ``sound`` those whose scene did not fail.
        """
        if self.kind != "learnable":
            return self
        return self._update(jnp.asarray(right), jnp.asarray(sound))

    def heed(
        self,
        asked: Int[Array, "seed row"],
        advantage: Float[Array, "seed row"],
        flat: Float[Array, "seed arm"],
    ) -> Curriculum:
        """Update with a batch that was learned from: each row's arm (-1: none) and absolute
        ``advantage``.

        ``flat`` counts the answers of each arm that were left out of the batch because the whole
        group had the same reward. The learner never saw them; they count as advantages of 0, which
        is what a group baseline would give them.
        """
        if self.kind != "advantage":
            return self
        hot = jax.nn.one_hot(asked, self.value.shape[1])
        return self._update(jnp.einsum("sr,sra->sa", advantage, hot), jnp.sum(hot, 1) + flat)

    def after_learning(self, learned: Curriculum) -> Curriculum:
        """Return the curriculum that has the answers of this one, and what learning changed in
        ``learned``: of each kind only one of them counts."""
        return learned if self.kind == "advantage" else self

    def _update(
        self, total: Float[Array, "seed arm"], seen: Float[Array, "seed arm"]
    ) -> Curriculum:
        mean = total / jnp.maximum(seen, 1.0)
        value = jnp.where(seen > 0, DECAY * self.value + (1.0 - DECAY) * mean, self.value)
        return Curriculum(value, self.count + seen, self.kind)


@partial(jax.jit, static_argnums=2)
def _sample_arms(
    keys: Key[Array, "seed"], probabilities: Float[Array, "seed arm"], count: int
) -> Int[Array, "seed {count}"]:
    def pick(key: Array, chance: Array) -> Array:
        return jax.random.choice(key, chance.size, (count,), p=chance)

    return jax.vmap(pick)(keys, probabilities)
