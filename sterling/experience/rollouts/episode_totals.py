"""Reduce an episode's steps to one number per channel, in collection and in evaluation alike.

Return and length are channels of every world, besides those that it declares itself. A total is a
channel's value so far in the episode that an env is in, ``(seed, env)`` or ``(seed, env, part)``.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sterling.problem.channels import Channel, channel_columns
from sterling.types import AnyArray

STANDARD_CHANNELS = {"return": Channel(better=1), "length": Channel()}
Totals = dict[str, Array]  # by channel
EnvMask = Bool[AnyArray, "seed env"]


def empty_totals(channels: dict[str, Channel], shape: tuple[int, int]) -> Totals:
    """Return the totals of episodes without steps."""
    made = {"return": jnp.zeros(shape), "length": jnp.zeros(shape, jnp.int32)}
    for name, channel in channels.items():
        least = -jnp.inf if channel.reduce == "max" else 0.0
        made[name] = jnp.full((*shape, *channel.shape), least, jnp.float32)
    return made


def add_step(
    channels: dict[str, Channel],
    totals: Totals,
    reward: Float[AnyArray, "seed env"],
    reported: dict[str, AnyArray],
    counts: EnvMask,
) -> Totals:
    """Return the totals after one more step, counted only where ``counts`` is True."""
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
        made[name] = jnp.where(_expand_dims(counts, value), value, before)
    return made


def channel_values(channels: dict[str, Channel], totals: Totals) -> Totals:
    """Return the channels' values of the episodes so far (means divided by the length)."""
    made = dict(totals)
    for name, channel in channels.items():
        if channel.reduce == "mean":
            steps = jnp.maximum(totals["length"], 1).astype(jnp.float32)
            made[name] = totals[name] / _expand_dims(steps, totals[name])
    return made


def split_columns(channels: dict[str, Channel], found: Totals) -> dict[str, Array]:
    """Return one array ``(seed, env)`` per column; vector channels have one column per part."""
    made: dict[str, Array] = {}
    for name, channel in (STANDARD_CHANNELS | channels).items():
        names = channel_columns({name: channel})
        values = jnp.moveaxis(found[name], -1, 0) if channel.parts else [found[name]]
        made |= dict(zip(names, values, strict=True))
    return made


def reset_totals(channels: dict[str, Channel], totals: Totals, over: EnvMask) -> Totals:
    """Return the totals, reset where an episode is ``over``."""
    fresh = empty_totals(channels, totals["return"].shape)  # type: ignore[arg-type]
    return jax.tree.map(lambda new, x: jnp.where(_expand_dims(over, x), new, x), fresh, totals)


def _expand_dims(which: AnyArray, like: Array) -> AnyArray:
    """Append axes to ``which`` until it has as many as ``like``."""
    return which.reshape(which.shape + (1,) * (like.ndim - which.ndim))
