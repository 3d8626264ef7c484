"""Rows of a ring as transitions over one or several steps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from sterling.equations.value import n_step_return
from sterling.experience.storage import Ring
from sterling.types import Action, Record, Transitions


def uniform(
    ring: Ring, n_step: int, shape: tuple[int, int], keys: Key[Array, "seed"]
) -> tuple[Int[Array, "seed update batch"], Int[Array, "seed update batch"], Bool[Array, "..."]]:
    """Rows and envs, each as likely as every other, and whether there were any."""
    first, size = ring.span(n_step)
    envs = ring.words.shape[2]
    most = jnp.maximum(size, 1) * envs
    flat = jax.vmap(lambda key: jax.random.randint(key, shape, 0, most, jnp.int32))(keys)
    row = jnp.mod(first + flat // envs, ring.rows)
    return row, flat % envs, jnp.broadcast_to(size > 0, flat.shape)


def transitions(
    ring: Ring,
    needs: Transitions,
    place: tuple[Int[Array, "seed update batch"], Int[Array, "seed update batch"]],
    valid: Bool[Array, "seed update batch"],
    *,
    extras: dict[str, Array],
) -> Record:
    """The windows that start at these places, each as one transition."""
    row, env = place
    ahead = jnp.arange(needs.n_step, dtype=jnp.int32).reshape(1, 1, 1, -1)
    rows = jnp.mod(row[..., None] + ahead, ring.rows)
    reward, discount, last, mask = ring.scalars(rows, jnp.broadcast_to(env[..., None], rows.shape))
    follows = mask[..., 1:] & ~last[..., :-1]
    follows = jnp.concatenate([jnp.ones_like(mask[..., :1]), follows], -1)
    total, _, steps = n_step_return(reward, needs.gamma * discount, follows)
    _, world_discount, _ = n_step_return(reward, discount, follows)
    final = jnp.take_along_axis(last, steps[..., None] - 1, -1)[..., 0]
    successor = jnp.mod(row + steps, ring.rows)
    if needs.next_action:
        after = jnp.mod(row + 1, ring.rows)
        goes_on = ~last[..., 0] & ring.mask(after, env)
        extras["next_action"] = only(goes_on, ring.action(after, env))
        final |= ~goes_on  # as at a cut: what was done next is not known
    if needs.monte_carlo is not None:
        extras["monte_carlo"] = jnp.full(total.shape, -jnp.inf)  # the episode may still go on
    extras |= _kept(ring, needs, (rows, env), (needs.gamma * discount, follows))
    return Record(
        obs=ring.obs(row, env),
        action=ring.action(row, env),
        reward=total,
        discount=world_discount * needs.gamma ** (steps - 1).astype(jnp.float32),
        next_obs=ring.obs(successor, env),
        last=final,
        mask=mask[..., 0] & valid,
        extras=extras,
    )


def _kept(
    ring: Ring, needs: Transitions, place: tuple[Array, Array], ahead: tuple[Array, Array]
) -> dict[str, Array]:
    """What is kept of the windows' rows: as it was in their first row, or what is summed over an
    episode summed over the window, as rewards are."""
    made: dict[str, Array] = {}
    if not needs.keep:
        return made
    rows, env = place
    for name, each in ring.kept(rows, jnp.broadcast_to(env[..., None], rows.shape)).items():
        by_part = jnp.moveaxis(each, rows.ndim, 0) if each.ndim > rows.ndim else each[None]
        if name in ring.summed:
            found = jnp.stack([n_step_return(part, *ahead)[0] for part in by_part])
        else:
            found = by_part[..., 0]
        made[name] = jnp.moveaxis(found, 0, -1) if each.ndim > rows.ndim else found[0]
    return made


def only(mask: Bool[Array, "seed update batch"], tree: Action) -> Action:
    """Every array of the tree where ``mask`` holds, elsewhere 0."""

    def one(x: Array) -> Array:
        wide = mask.reshape(*mask.shape, *(1,) * (x.ndim - mask.ndim))
        return jnp.where(wide, x, jnp.zeros_like(x))

    return jax.tree.map(one, tree)
