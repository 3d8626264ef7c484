"""Convert windows of a ring's rows to transitions over one or several steps."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from sterling.equations.value_losses import n_step_return
from sterling.experience.replay.kept_extras import PAST
from sterling.experience.replay.ring_buffer import Place, Ring
from sterling.experience.replay.window_relabelling import WindowRows
from sterling.problem.agent_axis import cut_off_alone
from sterling.types import Action, Feed, Record


def sample_windows(
    ring: Ring, window: int, shape: tuple[int, int], keys: Key[Array, "seed"]
) -> Int[Array, "seed update batch"]:
    """Draw complete windows uniformly, by the number ``row * envs + env`` of their first rows; -1
    if there are none."""
    first, size = ring.span(window)
    envs = ring.words.shape[2]
    most = jnp.maximum(size, 1) * envs
    flat = jax.vmap(lambda key: jax.random.randint(key, shape, 0, most, jnp.int32))(keys)
    row = jnp.mod(first + flat // envs, ring.rows)
    return jnp.where(size > 0, row * envs + flat % envs, -1)


def window_transitions(
    ring: Ring,
    feed: Feed,
    place: Place,
    *,
    extras: dict[str, Array],
    keep: bool,
    relabel: Callable[[Ring, Place, WindowRows], WindowRows] | None = None,
) -> Record:
    """Return the windows that start at ``place``, each as one transition.

    ``keep``: add the extras that the ring stores; ``relabel``: a change of the windows' rows before
    they are summed.
    """
    window = place.ahead(feed.n_step, ring.rows)
    reward, discount, last, mask = ring.scalars(window)
    rows = WindowRows(reward, discount, last, {})
    if relabel is not None:
        rows = relabel(ring, window, rows)
        reward, discount, last = rows.reward, rows.discount, rows.last
    follows = mask[..., 1:] & ~last[..., :-1] & ~_cut_off_before(ring, feed, window)
    follows, gamma = rows_to_sum(feed, jnp.concatenate([jnp.ones_like(mask[..., :1]), follows], -1))
    total, _, steps = n_step_return(reward, gamma * discount, follows)
    _, world_discount, _ = n_step_return(reward, discount, follows)
    final = jnp.take_along_axis(last, steps[..., None] - 1, -1)[..., 0]
    successor = place.at(jnp.mod(place.row + steps, ring.rows))
    extras |= _added_extras(feed, rows)
    if "next_action" in feed.add:
        after = place.at(jnp.mod(place.row + 1, ring.rows))
        goes_on = ~last[..., 0] & ring.mask(after)
        extras["next_action"] = zero_unless(goes_on, ring.action(after))
        final |= ~goes_on  # as at a truncation: the next action is unknown
    if keep:
        extras |= _kept_extras(ring, window, (gamma * discount, follows))
    return Record(
        obs=rows.replace_entries(ring.obs(place)),
        action=ring.action(place),
        reward=total,
        discount=world_discount * gamma ** (steps - 1).astype(jnp.float32),
        next_obs=rows.replace_entries(ring.obs(successor)),
        last=final,
        mask=mask[..., 0],
        extras=extras,
    )


def _added_extras(feed: Feed, rows: WindowRows) -> dict[str, Array]:
    """Return the extras that the feed asks for and the window's rows hold."""
    made: dict[str, Array] = {}
    if "one_step" in feed.add:
        made |= {"reward_now": rows.reward[..., 0], "discount_now": rows.discount[..., 0]}
    return made


def _cut_off_before(ring: Ring, feed: Feed, window: Place) -> Bool[Array, "..."]:
    """Return which rows but the first show the last observation of an agent that was cut off while
    others go on: no row after them shows it, and learners bootstrap from it."""
    cut = cut_off_alone(ring.obs(window)) if feed.n_step > 1 and ring.team else None
    return jnp.zeros((), bool) if cut is None else cut[..., 1:]


def rows_to_sum(
    feed: Feed, follows: Bool[Array, "... n"]
) -> tuple[Bool[Array, "... n"], Float[Array, ""] | float]:
    """Return which of a window's rows to sum, and the discount inside the sum.

    ``follows`` marks the rows that belong to the window's episode. The number of rows and the
    discount are the feed's, or its ``n_step_now``'s if it has one.
    """
    if feed.n_step_now is None:
        return follows, feed.gamma
    count, gamma = feed.n_step_now
    row = jnp.arange(feed.n_step, dtype=jnp.int32).reshape((1,) * (follows.ndim - 1) + (-1,))
    return follows & (row < count), gamma


def _kept_extras(ring: Ring, window: Place, ahead: tuple[Array, Array]) -> dict[str, Array]:
    """Return the windows' stored extras: those of the first row; channels that sum over an episode
    are summed over the window, as rewards are."""
    made: dict[str, Array] = {}
    axes = window.row.ndim
    names = [name for name in ring.kept_names if not name.startswith(PAST)]
    for name, each in ring.kept(window, names).items() if names else ():
        if name not in ring.summed:
            made[name] = jnp.take(each, 0, axes - 1)
            continue
        made[name] = sum_over_window(each, *ahead)
    return made


def sum_over_window(
    channel: Float[Array, "..."], factor: Float[Array, "... n"], follows: Bool[Array, "... n"]
) -> Float[Array, "..."]:
    """Return the sums of a channel's numbers, or of each of its parts on the last axis, over
    windows of rows, discounted as rewards are."""
    axes = follows.ndim
    by_part = jnp.moveaxis(channel, axes, 0) if channel.ndim > axes else channel[None]
    found = jnp.stack([n_step_return(part, factor, follows)[0] for part in by_part])
    return jnp.moveaxis(found, 0, -1) if channel.ndim > axes else found[0]


def zero_unless(mask: Bool[Array, "..."], tree: Action) -> Action:
    """Return every array of the tree with zeros where ``mask`` is False."""

    def one(x: Array) -> Array:
        wide = mask.reshape(*mask.shape, *(1,) * (x.ndim - mask.ndim))
        return jnp.where(wide, x, jnp.zeros_like(x))

    return jax.tree.map(one, tree)
