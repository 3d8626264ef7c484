"""Proportional priorities (Schaul 2016, arXiv:1511.05952, section 3.3), stored as a sum tree."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sterling.types import AnyNeeds, Feed, Mistake

FAN_OUT = 32  # children per node: four levels hold a million
OFFSET = 1e-6  # added to errors, so that every row can still be drawn (the paper's epsilon)
NOWHERE = 2**31 - 1  # index of rows that were not found; writing there is ignored


class SumTree(eqx.Module):
    """A sum tree for each seed: numbers, the sums of every ``FAN_OUT`` of them, the sums of those,
    and so on."""

    levels: tuple[Float[Array, "seed _ fan"], ...]  # the numbers are levels[0]

    @classmethod
    def zeros(cls, seeds: int, size: int) -> SumTree:
        """Create a tree of ``size`` zeros per seed."""
        levels: list[Array] = []
        groups = size
        while groups > 1 or not levels:
            groups = -(-groups // FAN_OUT)
            levels.append(jnp.zeros((seeds, groups, FAN_OUT)))
        return cls(tuple(levels))

    @classmethod
    def from_numbers(cls, numbers: Float[Array, "seed size"]) -> SumTree:
        """Create a tree of these numbers."""
        levels = list(cls.zeros(*numbers.shape).levels)
        for depth, level in enumerate(levels):
            spare = level[0].size - numbers.shape[1]
            levels[depth] = jnp.pad(numbers, ((0, 0), (0, spare))).reshape(level.shape)
            numbers = levels[depth].sum(-1)
        return cls(tuple(levels))

    @property
    def total(self) -> Float[Array, "seed"]:
        """Return the sum of all numbers."""
        return self.levels[-1].sum((1, 2))

    def get(self, index: Int[Array, "seed n"]) -> Float[Array, "seed n"]:
        """Return the numbers at ``index``."""
        return self.levels[0][_seed_index(index), index // FAN_OUT, index % FAN_OUT]

    def put(self, index: Int[Array, "seed n"], value: Float[Array, "seed n"]) -> SumTree:
        """Replace numbers (none negative); if an index occurs twice, the larger number is stored.

        Indices beyond the end are ignored.
        """
        seeds = _seed_index(index)
        place = (seeds, index // FAN_OUT, index % FAN_OUT)
        cleared = self.levels[0].at[place].set(0.0, mode="drop")
        levels = [cleared.at[place].max(value, mode="drop")]
        for level in self.levels[1:]:
            index = index // FAN_OUT
            sums = levels[-1][seeds, index].sum(-1)
            place = (seeds, index // FAN_OUT, index % FAN_OUT)
            levels.append(level.at[place].set(sums, mode="drop"))
        return SumTree(tuple(levels))

    def find(self, share: Float[Array, "seed n"]) -> Int[Array, "seed n"]:
        """Return the index at which the running sum passes ``share`` (in [0, 1)) of the total;
        never one of a zero.

        In a tree of zeros the index is arbitrary.
        """
        seeds, index = _seed_index(share), jnp.zeros(share.shape, jnp.int32)
        rest = share * self.total[:, None]
        for level in reversed(self.levels):
            sums = jnp.cumsum(level[seeds, index], -1)
            rest = jnp.minimum(rest, jnp.nextafter(sums[..., -1], jnp.zeros_like(rest)))
            child = jnp.sum(sums <= rest[..., None], -1, dtype=jnp.int32)
            child = jnp.minimum(child, FAN_OUT - 1)
            before = jnp.take_along_axis(sums, jnp.maximum(child - 1, 0)[..., None], -1)[..., 0]
            rest = rest - jnp.where(child > 0, before, 0.0)
            index = index * FAN_OUT + child
        return index


class Priorities(eqx.Module):
    """Each row's priority (|error| + offset) ** exponent; 0 for rows that must not be drawn."""

    tree: SumTree
    largest: Float[Array, "seed"]  # the largest priority so far, given to new rows
    exponent: float = eqx.field(static=True)  # alpha
    correction: float = eqx.field(static=True)  # beta

    @classmethod
    def create(cls, seeds: int, size: int, exponent: float, correction: float) -> Priorities:
        """Create priorities of ``size`` rows per seed."""
        return cls(SumTree.zeros(seeds, size), jnp.ones(seeds), exponent, correction)

    def admit(self, index: Int[Array, "n"], allowed: Bool[Array, "seed n"]) -> Priorities:
        """Give new rows the largest priority so far, and 0 to those not ``allowed``."""
        value = jnp.where(allowed, self.largest[:, None], 0.0)
        tree = self.tree.put(jnp.broadcast_to(index[None], allowed.shape), value)
        return eqx.tree_at(lambda p: p.tree, self, tree)

    def draw(
        self, share: Float[Array, "seed batch"]
    ) -> tuple[Int[Array, "seed batch"], Float[Array, "seed batch"]]:
        """Draw rows in proportion to their priority, from numbers uniform in [0, 1); -1 if there
        are none.

        Also returns importance weights (N p)^-beta / max (section 3.4; N and the total cancel in
        the division by the batch's largest).
        """
        place = self.tree.find(share)
        # read once: the compiler could move a second read behind the write in learn,
        # and would then copy the tree
        place, priority = jax.lax.optimization_barrier((place, self.tree.get(place)))
        found = priority > 0.0
        smallest = jnp.min(jnp.where(found, priority, jnp.inf), -1, keepdims=True)
        ratio = jnp.where(found, smallest, 1.0) / jnp.where(found, priority, 1.0)
        return jnp.where(found, place, -1), ratio**self.correction

    def learn(
        self, place: Int[Array, "seed batch"], error: Float[Array, "seed batch"]
    ) -> Priorities:
        """Set the priorities of the rows at ``place`` from their errors (-1: no row)."""
        value = (jnp.abs(error) + OFFSET) ** self.exponent
        tree = self.tree.put(jnp.where(place < 0, NOWHERE, place), value)
        largest = jnp.where(place < 0, 0.0, value).max(1)
        made = (tree, jnp.maximum(self.largest, largest))
        return eqx.tree_at(lambda p: (p.tree, p.largest), self, made)


def _seed_index(index: Array) -> Int[Array, "seed 1"]:
    return jnp.arange(index.shape[0], dtype=jnp.int32)[:, None]


def prioritised_feed(needs: AnyNeeds) -> Feed | None:
    """Return the feed that draws by priority; None if there is none."""
    by = [feed for feed in needs.feeds if feed.priority]
    if len(by) > 1:
        raise Mistake("only one feed may draw by priority; set the others' priority to 0")
    return by[0] if by else None


def priority_window(needs: AnyNeeds) -> int:
    """Return how many rows must be known before the first of them can be drawn by priority."""
    by = prioritised_feed(needs)
    return by.window if by is not None else 1
