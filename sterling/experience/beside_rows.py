"""Choose the rows that stand beside a batch, as the laws of ``Feed.beside`` say, in any store."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import random_keys as named
from sterling.needs.beside_laws import Anywhere, Beside, Later, SameTask
from sterling.types import Feed, Mistake, Record

STEPS = "steps"  # extra of a later row: how many steps after its row it is; -1: any row
NO_LIMIT = 2**31 - 1

Rows = Int[Array, "..."]  # numbers of rows in a store
DrawRows = Callable[[tuple[int, int], Key[Array, "seed"]], Int[Array, "seed ..."]]
DrawTaskRows = Callable[[SameTask, Key[Array, "seed"]], Int[Array, "seed ..."]]


@runtime_checkable
class Store(Protocol):
    """What rows beside a batch are read from: the rows of one seed, by their numbers."""

    def steps_left(self, row: Rows) -> Int[Array, "..."]:
        """Return how many rows of its episode begin with each row, itself included: the steps to
        the final observation. 0: unknown."""
        ...

    def at(self, row: Rows) -> Record:
        """Return the rows, with one-step rewards and the extras that are kept."""
        ...

    def ahead(self, row: Rows, steps: Int[Array, "..."]) -> Rows:
        """Return the rows so many steps later in the same episode."""
        ...


class Chance(eqx.Module):
    """The random numbers of later rows, for every row of a batch."""

    kind: Float[Array, "..."]  # which share
    ahead: Float[Array, "..."]  # how many steps
    other: Rows  # any row


def presample(
    feed: Feed, keys: Key[Array, "seed"], draw_rows: DrawRows, draw_task_rows: DrawTaskRows
) -> dict[str, Any]:
    """Draw the random numbers of all rows beside a feed's batches, leaves ``(seed, update, ...)``;
    ``draw_rows`` draws rows from anywhere in the store, ``draw_task_rows`` those of the tasks of
    the batches' rows."""
    found: dict[str, Any] = {}
    for each in feed.own_beside:
        own = named.fold_each(keys, f"beside {each.name}")
        if isinstance(each.law, Anywhere):
            found[each.name] = draw_rows((feed.updates, each.law.rows), own)
        elif isinstance(each.law, SameTask):
            found[each.name] = draw_task_rows(each.law, own)
        elif not each.law.steps:
            found[each.name] = _chance(own, (feed.updates, feed.batch), draw_rows)
    return found


def _chance(keys: Key[Array, "seed"], shape: tuple[int, int], draw_rows: DrawRows) -> Chance:
    def uniform(name: str) -> Float[Array, "seed ..."]:
        own = named.fold_each(keys, name)
        return jax.vmap(lambda key: jax.random.uniform(key, shape))(own)

    return Chance(uniform("kind"), uniform("ahead"), draw_rows(shape, named.fold_each(keys, "any")))


def rows_beside(
    beside: tuple[Beside, ...], row: Rows, chances: dict[str, Any], store: Store
) -> dict[str, Record]:
    """Return what stands beside these rows of a batch."""
    found: dict[str, Record] = {}
    limits: dict[str, Array] = {"": jnp.int32(NO_LIMIT)}
    for each in beside:
        chance: Any = chances.get(each.name)
        if not isinstance(each.law, Later):
            found[each.name] = store.at(chance)
            continue
        left = store.steps_left(row)
        steps, elsewhere = steps_ahead(each.law, left, chance)
        steps = jnp.minimum(steps, limits[each.law.not_after])
        limits[each.name] = jnp.where(elsewhere, NO_LIMIT, steps)
        at = row if chance is None else jnp.where(elsewhere, chance.other, row)
        own = later_rows(store, at, jnp.where(elsewhere, 0, steps), left)
        if STEPS in own.extras:
            raise Mistake(f"keep names {STEPS!r}, an extra that later rows have. Rename it.")
        extras = own.extras | {STEPS: jnp.where(elsewhere, -1, steps)}
        found[each.name] = dataclasses.replace(own, extras=extras)
    return found


def steps_ahead(
    law: Later, left: Int[Array, "..."], chance: Chance | None
) -> tuple[Int[Array, "..."], Bool[Array, "..."]]:
    """Return how many steps later the rows lie, and which of them are any row instead."""
    if chance is None:
        return jnp.minimum(law.steps, left), jnp.zeros_like(left, bool)
    if law.discount < 1.0:
        beyond = jnp.floor(jnp.log1p(-chance.ahead) / jnp.log(jnp.float32(law.discount)))
    else:
        beyond = jnp.floor(chance.ahead * left.astype(jnp.float32))
    steps = 1 + jnp.minimum(beyond, (left - 1).astype(jnp.float32)).astype(jnp.int32)
    here, later, _ = law.share
    elsewhere = (chance.kind >= here + later) if law.share[2] else jnp.zeros_like(left, bool)
    return jnp.where(chance.kind < here, 0, steps), elsewhere


def later_rows(
    store: Store, row: Rows, steps: Int[Array, "..."], left: Int[Array, "..."]
) -> Record:
    """Return the rows ``steps`` after these; a final observation is a masked row, of nothing but
    this observation."""
    final = (steps == left) & (steps > 0)
    record = store.at(store.ahead(row, jnp.where(final, steps - 1, steps)))

    def chosen(one: Any, other: Any) -> Any:
        def leaf(x: Array, y: Array) -> Array:
            return jnp.where(final.reshape(*final.shape, *(1,) * (x.ndim - final.ndim)), x, y)

        return jax.tree.map(leaf, one, other)

    return dataclasses.replace(
        record,
        obs=chosen(record.next_obs, record.obs),
        action=chosen(jax.tree.map(jnp.zeros_like, record.action), record.action),
        reward=jnp.where(final, 0.0, record.reward),
        discount=jnp.where(final, 1.0, record.discount),
        last=record.last & ~final,
        mask=record.mask & ~final,
        extras=chosen(jax.tree.map(jnp.zeros_like, record.extras), record.extras),
    )
