"""Rows of a ring as transitions over one or several steps."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from sterling.equations.value import n_step_return
from sterling.experience.relabelling import Rows
from sterling.experience.storage import Place, Ring
from sterling.types import Action, Feed, Record


def uniform(
    ring: Ring, window: int, shape: tuple[int, int], keys: Key[Array, "seed"]
) -> Int[Array, "seed update batch"]:
    """Rows of whole windows by their number ``row * envs + env``, each as likely as every other;
    -1 where there are none."""
    first, size = ring.span(window)
    envs = ring.words.shape[2]
    most = jnp.maximum(size, 1) * envs
    flat = jax.vmap(lambda key: jax.random.randint(key, shape, 0, most, jnp.int32))(keys)
    row = jnp.mod(first + flat // envs, ring.rows)
    return jnp.where(size > 0, row * envs + flat % envs, -1)


def transitions(
    ring: Ring,
    feed: Feed,
    place: Place,
    *,
    extras: dict[str, Array],
    keep: bool,
    relabel: Callable[[Ring, Place, Rows], Rows] | None = None,
) -> Record:
    """The windows that start at these places, each as one transition; ``keep``: with what the ring
    keeps of their extras; ``relabel``: a change of their rows before they are summed."""
    window = place.ahead(feed.n_step, ring.rows)
    reward, discount, last, mask = ring.scalars(window)
    rows = Rows(reward, discount, last, {})
    if relabel is not None:
        rows = relabel(ring, window, rows)
        reward, discount, last = rows.reward, rows.discount, rows.last
    follows = mask[..., 1:] & ~last[..., :-1]
    follows, gamma = within(feed, jnp.concatenate([jnp.ones_like(mask[..., :1]), follows], -1))
    total, _, steps = n_step_return(reward, gamma * discount, follows)
    _, world_discount, _ = n_step_return(reward, discount, follows)
    final = jnp.take_along_axis(last, steps[..., None] - 1, -1)[..., 0]
    successor = place.at(jnp.mod(place.row + steps, ring.rows))
    if feed.next_action:
        after = place.at(jnp.mod(place.row + 1, ring.rows))
        goes_on = ~last[..., 0] & ring.mask(after)
        extras["next_action"] = only(goes_on, ring.action(after))
        final |= ~goes_on  # as at a cut: what was done next is not known
    if feed.monte_carlo is not None:
        extras["monte_carlo"] = jnp.full(total.shape, -jnp.inf)  # the episode may still go on
    if keep:
        extras |= _kept(ring, window, (gamma * discount, follows))
    return Record(
        obs=rows.shown(ring.obs(place)),
        action=ring.action(place),
        reward=total,
        discount=world_discount * gamma ** (steps - 1).astype(jnp.float32),
        next_obs=rows.shown(ring.obs(successor)),
        last=final,
        mask=mask[..., 0],
        extras=extras,
    )


def within(
    feed: Feed, follows: Bool[Array, "... n"]
) -> tuple[Bool[Array, "... n"], Float[Array, ""] | float]:
    """Which of a window's rows are summed, where ``follows`` says which belong together, and the
    discount inside the sum: the feed's own, or where it has one, its horizon's."""
    if feed.horizon is None:
        return follows, feed.gamma
    count, gamma = feed.horizon
    row = jnp.arange(feed.n_step, dtype=jnp.int32).reshape((1,) * (follows.ndim - 1) + (-1,))
    return follows & (row < count), gamma


def _kept(ring: Ring, window: Place, ahead: tuple[Array, Array]) -> dict[str, Array]:
    """What is kept of the windows' rows: as it was in their first row, or what is summed over an
    episode summed over the window, as rewards are."""
    made: dict[str, Array] = {}
    axes = window.row.ndim
    for name, each in ring.kept(window).items():
        if name not in ring.summed:
            made[name] = jnp.take(each, 0, axes - 1)
            continue
        by_part = jnp.moveaxis(each, axes, 0) if each.ndim > axes else each[None]
        found = jnp.stack([n_step_return(part, *ahead)[0] for part in by_part])
        made[name] = jnp.moveaxis(found, 0, -1) if each.ndim > axes else found[0]
    return made


def only(mask: Bool[Array, "..."], tree: Action) -> Action:
    """Every array of the tree where ``mask`` holds, elsewhere 0."""

    def one(x: Array) -> Array:
        wide = mask.reshape(*mask.shape, *(1,) * (x.ndim - mask.ndim))
        return jnp.where(wide, x, jnp.zeros_like(x))

    return jax.tree.map(one, tree)
