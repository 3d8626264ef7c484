"""Rotary positions (Su 2021, arXiv:2104.09864): queries and keys turn by their positions."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

ROTARY_BASE = 10_000.0  # of rotary positions: the longest wavelength is 2 pi times it, in tokens
Rotation = tuple[Float[Array, "#batch 1 time half"], Float[Array, "#batch 1 time half"]]


def rotary_rates(size: int, base: float = ROTARY_BASE) -> tuple[float, ...]:
    """Return the rotary rates base^(-2 i / size) of each pair i (Su 2021, section 3.4.2)."""
    return tuple(base ** (-2.0 * i / size) for i in range(size // 2))


def rotations(at: Int[Array, "#batch time"], rates: tuple[float, ...]) -> Rotation:
    """Return cosine and sine of the rotary angles of tokens at these positions."""
    angle = at.astype(jnp.float32)[..., None] * jnp.asarray(rates, jnp.float32)[None, None]
    return jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]


def kept_rotation(turn: Rotation, rotary: Bool[Array, ""] | None) -> Rotation:
    """Return the rotation of a layer, by no angle if it has no rotary positions."""
    if rotary is None:
        return turn
    return jnp.where(rotary, turn[0], 1.0), jnp.where(rotary, turn[1], 0.0)


def apply_rotation(x: Float[Array, "batch head time size"], turn: Rotation) -> Array:
    """Rotate each pair (x_i, x_{i + half}) by the angle at * rate_i: the product of two rotated
    vectors depends only on the distance of their positions (Su 2021, eq. 15). Numbers from 2 half
    on stay as they are."""
    cos, sin = (part.astype(x.dtype) for part in turn)
    half = cos.shape[-1]
    first, second, rest = jnp.split(x, [half, 2 * half], -1)
    turned = [first * cos - second * sin, first * sin + second * cos]
    return jnp.concatenate([*turned, rest] if rest.shape[-1] else turned, -1)
