"""The return to the episode's end of every row of a ring, known once the episode has ended."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sterling.equations.returns import lowest_return
from sterling.experience.replay.ring_buffer import Place, Ring, shapes_with_rows
from sterling.needs.feed import PAD
from sterling.problem.agent_axis import cut_off_alone
from sterling.types import AnyNeeds, Record

Numbers = tuple[Array, Array]  # total and rest


class ReturnsToGo(eqx.Module):
    """Every row's return to go, G_t = r_t + gamma d_t G_{t+1}, written back when its episode ends.

    It is kept as ``total + rest * B``, B being the lower bound of the return after a truncation:
    that of the lowest reward so far (0 for padded sequences, as in a log). A crash, and a restart
    of a world that could not be saved, truncate; so does a step that cuts off an agent of a team
    while others go on. Of an unfinished episode ``total`` is the row's
    own reward and ``rest`` is gamma d.
    """

    total: Float[Array, "seed rows env"]
    rest: Float[Array, "seed rows env"]
    pending: Int[Array, "seed env"]  # newest rows whose episode has not ended
    lowest: Float[Array, "seed"]  # lowest reward so far, at most 0
    count: Int[Array, ""]  # newest rows that are written here
    gamma: float = eqx.field(static=True)
    bounded: bool = eqx.field(static=True)  # whether truncations count as the lower bound

    @classmethod
    def create(cls, ring: Ring, needs: AnyNeeds) -> ReturnsToGo | None:
        """Create those of an empty ring; None if no feed asks for them."""
        asked = [feed.monte_carlo for feed in needs.feeds if feed.monte_carlo is not None]
        if not asked:
            return None
        seeds, rows, envs = ring.words.shape[:3]
        none = jnp.zeros((seeds, rows, envs))
        bounded = all(feed.edge != PAD for feed in needs.feeds)
        pending, count = (jnp.zeros(shape, jnp.int32) for shape in ((seeds, envs), ()))
        lowest = jnp.zeros(seeds)
        return cls(none, none.copy(), pending, lowest, count, float(asked[0]), bounded)

    def insert(self, ring: Ring, record: Record) -> ReturnsToGo:
        """Return the returns with the rows ``(seed, time, env, ...)`` that are about to be added to
        ``ring``."""
        reward = jnp.where(record.mask, record.reward, 0.0)
        factor = jnp.where(record.mask, self.gamma * record.discount, 0.0)
        time = reward.shape[1]
        cut = cut_off_alone(record.next_obs) if ring.team else None
        ends = record.last if cut is None else record.last | (cut & record.mask)
        by_time = (jnp.swapaxes(x, 0, 1) for x in (reward, factor, ends, record.mask))
        where = jnp.mod(ring.head + jnp.arange(time, dtype=jnp.int32), ring.rows)

        def step(carry: tuple[Numbers, Array], row: tuple[Array, ...]) -> tuple[Any, None]:
            numbers, pending = carry
            where, reward, factor, end, mask = row
            before = jnp.where(mask, 0, pending)  # whose episode broke off
            numbers = _closed(numbers, where - 1, before)
            numbers = numbers[0].at[:, where].set(reward), numbers[1].at[:, where].set(factor)
            pending = jnp.where(mask, jnp.minimum(pending + 1, ring.rows), 0)
            numbers = _closed(numbers, where, jnp.where(end, pending, 0))
            return (numbers, jnp.where(end, 0, pending)), None

        begun = (self.total, self.rest), self.pending
        ((total, rest), pending), _ = jax.lax.scan(step, begun, (where, *by_time))
        return dataclasses.replace(
            self,
            total=total,
            rest=rest,
            pending=pending,
            lowest=jnp.minimum(self.lowest, reward.min((1, 2))),
            count=jnp.minimum(self.count + time, ring.rows),
        )

    def lookup(self, ring: Ring, place: Place) -> Float[Array, "..."]:
        """Return the rows' returns to go: -inf if their episode has not ended, 0 of masked rows."""
        age = jnp.mod(ring.head - 1 - place.row, ring.rows)
        known = (age >= self.pending[place.seed, place.env]) & (age < self.count)
        found = self.total[place]
        if self.bounded:
            found += self.rest[place] * lowest_return(self.lowest, self.gamma)[place.seed]
        return jnp.where(known, found, -jnp.inf)

    def shapes_with_capacity(self, rows: int) -> ReturnsToGo:
        """Return the shapes and dtypes at a capacity of ``rows``."""
        shapes: Any = eqx.filter_eval_shape(lambda: self)
        by_row = shapes_with_rows((self.total, self.rest), rows)
        resized: ReturnsToGo = eqx.tree_at(lambda x: (x.total, x.rest), shapes, by_row)
        return resized

    def with_capacity(self, ring: Ring, rows: int) -> ReturnsToGo:
        """Return the returns after ``ring`` grows to a capacity of ``rows``."""
        total, rest = (ring.oldest_first(x, rows) for x in (self.total, self.rest))
        return dataclasses.replace(self, total=total, rest=rest)


def _closed(numbers: Numbers, newest: Int[Array, ""], count: Int[Array, "seed env"]) -> Numbers:
    """Return the numbers after the end of the episodes of the ``count`` newest rows: each row's
    own are joined with those of the row after it."""
    seeds, rows, envs = numbers[0].shape

    def going(carry: tuple[Array, Numbers, Numbers]) -> Array:
        return carry[0] < count.max()

    def back(carry: tuple[Array, Numbers, Numbers]) -> tuple[Array, Numbers, Numbers]:
        steps, (total, rest), (next_total, next_rest) = carry
        row, inside = jnp.mod(newest - steps, rows), steps < count
        own, factor = total[:, row], rest[:, row]
        own, factor = (
            jnp.where(inside, own + factor * next_total, own),
            jnp.where(inside, factor * next_rest, factor),
        )
        return steps + 1, (total.at[:, row].set(own), rest.at[:, row].set(factor)), (own, factor)

    after = jnp.zeros((seeds, envs)), jnp.ones((seeds, envs))  # nothing, then the bound
    begun = jnp.zeros((), jnp.int32), numbers, after
    return jax.lax.while_loop(going, back, begun)[1]
