"""The one rule by which an episode's steps become numbers: in collection and in evaluation.

The return and the length are channels of every world, beside those that it reports itself. A total
is what a channel has come to so far in the episode that an env is in, ``(seed, env)`` or
``(seed, env, part)``.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sterling.channels import Channel, columns
from sterling.types import AnyArray

OF_EVERY_WORLD = {"return": Channel(better=1), "length": Channel()}
Totals = dict[str, Array]  # by channel
Where = Bool[AnyArray, "seed env"]


def begin(channels: dict[str, Channel], shape: tuple[int, int]) -> Totals:
    """The totals of episodes of no steps."""
    made = {"return": jnp.zeros(shape), "length": jnp.zeros(shape, jnp.int32)}
    for name, channel in channels.items():
        least = -jnp.inf if channel.reduce == "max" else 0.0
        made[name] = jnp.full((*shape, *channel.shape), least, jnp.float32)
    return made


def add(
    channels: dict[str, Channel],
    totals: Totals,
    reward: Float[AnyArray, "seed env"],
    reported: dict[str, AnyArray],
    counts: Where,
) -> Totals:
    """The totals after one more step, of the envs in which it ``counts``."""
    made = {
        "return": totals["return"] + jnp.where(counts, reward, 0.0),
        "length": totals["length"] + counts.astype(jnp.int32),
    }
    for name, channel in channels.items():
        value, before = jnp.asarray(reported[name]), totals[name]
        if channel.reduce == "max":
            value = jnp.maximum(before, value)
        elif channel.reduce != "last":
            value = before + value
        made[name] = jnp.where(_wide(counts, value), value, before)
    return made


def numbers(channels: dict[str, Channel], totals: Totals) -> Totals:
    """What the episodes came to so far, by channel."""
    made = dict(totals)
    for name, channel in channels.items():
        if channel.reduce == "mean":
            steps = jnp.maximum(totals["length"], 1).astype(jnp.float32)
            made[name] = totals[name] / _wide(steps, totals[name])
    return made


def by_column(channels: dict[str, Channel], found: Totals) -> dict[str, Array]:
    """One array ``(seed, env)`` for each column, the parts of vectors apart."""
    made: dict[str, Array] = {}
    for name, channel in (OF_EVERY_WORLD | channels).items():
        names = columns({name: channel})
        values = jnp.moveaxis(found[name], -1, 0) if channel.parts else [found[name]]
        made |= dict(zip(names, values, strict=True))
    return made


def begin_again(channels: dict[str, Channel], totals: Totals, over: Where) -> Totals:
    """The totals, anew where an episode is ``over``."""
    fresh = begin(channels, totals["return"].shape)  # type: ignore[arg-type]
    return jax.tree.map(lambda new, x: jnp.where(_wide(over, x), new, x), fresh, totals)


def _wide(which: AnyArray, like: Array) -> AnyArray:
    """``which`` with as many axes as ``like`` has."""
    return which.reshape(which.shape + (1,) * (like.ndim - which.ndim))
