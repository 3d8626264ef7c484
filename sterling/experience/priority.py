"""Proportional priorities (Schaul 2016, arXiv:1511.05952, section 3.3) as a tree of sums."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

FAN = 32  # children of a node: four levels hold a million
OFFSET = 1e-6  # added to errors, so that no row is lost for ever (epsilon of the paper)
NOWHERE = 2**31 - 1  # the place of what was not found


class SumTree(eqx.Module):
    """Numbers and the sums of every ``FAN`` of them, of those sums, and so on, for each seed."""

    levels: tuple[Float[Array, "seed _ fan"], ...]  # the numbers first

    @classmethod
    def zeros(cls, seeds: int, size: int) -> SumTree:
        """Room for ``size`` numbers a seed."""
        levels: list[Array] = []
        groups = size
        while groups > 1 or not levels:
            groups = -(-groups // FAN)
            levels.append(jnp.zeros((seeds, groups, FAN)))
        return cls(tuple(levels))

    @classmethod
    def of(cls, numbers: Float[Array, "seed size"]) -> SumTree:
        """These numbers and their sums."""
        levels = list(cls.zeros(*numbers.shape).levels)
        for depth, level in enumerate(levels):
            spare = level[0].size - numbers.shape[1]
            levels[depth] = jnp.pad(numbers, ((0, 0), (0, spare))).reshape(level.shape)
            numbers = levels[depth].sum(-1)
        return cls(tuple(levels))

    @property
    def total(self) -> Float[Array, "seed"]:
        """The sum of all."""
        return self.levels[-1].sum((1, 2))

    def get(self, index: Int[Array, "seed n"]) -> Float[Array, "seed n"]:
        """The numbers at ``index``."""
        return self.levels[0][_seeds(index), index // FAN, index % FAN]

    def put(self, index: Int[Array, "seed n"], value: Float[Array, "seed n"]) -> SumTree:
        """Replace numbers (none negative); of several for one place the largest stays.

        A place beyond the end is passed over.
        """
        seeds = _seeds(index)
        place = (seeds, index // FAN, index % FAN)
        cleared = self.levels[0].at[place].set(0.0, mode="drop")
        levels = [cleared.at[place].max(value, mode="drop")]
        for level in self.levels[1:]:
            index = index // FAN
            sums = levels[-1][seeds, index].sum(-1)
            place = (seeds, index // FAN, index % FAN)
            levels.append(level.at[place].set(sums, mode="drop"))
        return SumTree(tuple(levels))

    def find(self, share: Float[Array, "seed n"]) -> Int[Array, "seed n"]:
        """Where the running sum passes ``share`` in [0, 1) of the total; never at a zero.

        In a tree of zeros the answer is any place.
        """
        seeds, index = _seeds(share), jnp.zeros(share.shape, jnp.int32)
        rest = share * self.total[:, None]
        for level in reversed(self.levels):
            sums = jnp.cumsum(level[seeds, index], -1)
            rest = jnp.minimum(rest, jnp.nextafter(sums[..., -1], jnp.zeros_like(rest)))
            child = jnp.sum(sums <= rest[..., None], -1, dtype=jnp.int32)
            child = jnp.minimum(child, FAN - 1)
            before = jnp.take_along_axis(sums, jnp.maximum(child - 1, 0)[..., None], -1)[..., 0]
            rest = rest - jnp.where(child > 0, before, 0.0)
            index = index * FAN + child
        return index


class Priorities(eqx.Module):
    """Each row's priority (error + offset) ** exponent, 0 where a row must not be drawn."""

    tree: SumTree
    largest: Float[Array, "seed"]  # what new rows get: the largest priority seen so far
    exponent: float = eqx.field(static=True)  # alpha
    correction: float = eqx.field(static=True)  # beta

    @classmethod
    def create(cls, seeds: int, size: int, exponent: float, correction: float) -> Priorities:
        """For ``size`` rows a seed."""
        return cls(SumTree.zeros(seeds, size), jnp.ones(seeds), exponent, correction)

    def admit(self, index: Int[Array, "n"], allowed: Bool[Array, "seed n"]) -> Priorities:
        """Give new rows the largest priority, and 0 to those that are not ``allowed``."""
        value = jnp.where(allowed, self.largest[:, None], 0.0)
        tree = self.tree.put(jnp.broadcast_to(index[None], allowed.shape), value)
        return eqx.tree_at(lambda p: p.tree, self, tree)

    def draw(
        self, share: Float[Array, "seed batch"]
    ) -> tuple[Int[Array, "seed batch"], Float[Array, "seed batch"]]:
        """Rows in proportion to their priority, by numbers uniform in [0, 1), or -1 where there are
        none.

        Returns them, and importance weights (N p)^-beta / max (section 3.4; N and the total cancel
        in the division by the batch's largest).
        """
        place = self.tree.find(share)
        # read once: a second reading, put off by the compiler until after learn has written,
        # would make it copy the tree
        place, priority = jax.lax.optimization_barrier((place, self.tree.get(place)))
        found = priority > 0.0
        smallest = jnp.min(jnp.where(found, priority, jnp.inf), -1, keepdims=True)
        ratio = jnp.where(found, smallest, 1.0) / jnp.where(found, priority, 1.0)
        return jnp.where(found, place, -1), ratio**self.correction

    def learn(
        self, place: Int[Array, "seed batch"], error: Float[Array, "seed batch"]
    ) -> Priorities:
        """Priorities from the errors of the rows at these places (-1: of none)."""
        value = (jnp.abs(error) + OFFSET) ** self.exponent
        tree = self.tree.put(jnp.where(place < 0, NOWHERE, place), value)
        largest = jnp.where(place < 0, 0.0, value).max(1)
        made = (tree, jnp.maximum(self.largest, largest))
        return eqx.tree_at(lambda p: (p.tree, p.largest), self, made)


def _seeds(index: Array) -> Int[Array, "seed 1"]:
    return jnp.arange(index.shape[0], dtype=jnp.int32)[:, None]
