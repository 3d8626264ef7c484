"""Flow matching: a distribution as the end of straight paths from noise (Lipman 2023,
arXiv:2210.02747; Liu 2023, arXiv:2209.03003). Noise is at time 0, data at time 1."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def between(
    noise: Float[Array, "... n"], data: Float[Array, "... n"], time: Float[Array, "... 1"]
) -> Float[Array, "... n"]:
    """x_t = (1 - t) z + t x, the straight path from noise z to data x."""
    return (1.0 - time) * noise + time * data


def flow_matching_loss(
    velocity: Float[Array, "... n"], noise: Float[Array, "... n"], data: Float[Array, "... n"]
) -> Float[Array, "..."]:
    """Mean over the numbers of (v(t, x_t) - (x - z))^2, per row.

    x - z is the velocity d x_t / dt of the path. Many paths cross in a point; the least squares
    keep their mean there, E[x - z | x_t], whose flow carries the noise's distribution to that of
    the data (Lipman 2023, theorem 2).
    """
    return jnp.mean(jnp.square(velocity - (data - noise)), -1)


def euler(
    field: Callable[[Float[Array, "... n"], Float[Array, "... 1"]], Float[Array, "... n"]],
    start: Float[Array, "... n"],
    steps: int,
) -> Float[Array, "... n"]:
    """Where the flow dx/dt = ``field(x, t)`` carries ``start`` from time 0 to 1, in Euler steps:
    x <- x + v(x, t) / steps at t = 0, 1 / steps, ..."""

    def step(x: Array, time: Array) -> tuple[Array, None]:
        at = jnp.full_like(x[..., :1], time)
        return x + field(x, at) / steps, None

    times = jnp.arange(steps, dtype=start.dtype) / steps
    return jax.lax.scan(step, start, times)[0]
