"""Flow matching: a velocity field that carries noise (time 0) to the data's distribution (time 1)
(Lipman 2023, arXiv:2210.02747; Liu 2023, arXiv:2209.03003)."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def interpolate(
    noise: Float[Array, "... n"], data: Float[Array, "... n"], time: Float[Array, "... 1"]
) -> Float[Array, "... n"]:
    """Return x_t = (1 - t) z + t x, the point at ``time`` t on the line from noise z to data x."""
    return (1.0 - time) * noise + time * data


def flow_matching_loss(
    velocity: Float[Array, "... n"], noise: Float[Array, "... n"], data: Float[Array, "... n"]
) -> Float[Array, "..."]:
    """Return the loss (v(t, x_t) - (x - z))^2 of each row, averaged over its numbers.

    x - z is the velocity d x_t / dt of a path. Where paths cross, the minimiser is their mean
    velocity E[x - z | x_t], and its flow carries the noise's distribution to that of the data
    (Lipman 2023, theorem 2).
    """
    return jnp.mean(jnp.square(velocity - (data - noise)), -1)


def integrate_euler(
    field: Callable[[Float[Array, "... n"], Float[Array, "... 1"]], Float[Array, "... n"]],
    start: Float[Array, "... n"],
    steps: int,
) -> Float[Array, "... n"]:
    """Integrate the flow dx/dt = ``field(x, t)`` from ``start`` at time 0 to time 1 by Euler steps
    x <- x + v(x, t) / steps at t = 0, 1 / steps, ..."""

    def step(x: Array, time: Array) -> tuple[Array, None]:
        at = jnp.full_like(x[..., :1], time)
        return x + field(x, at) / steps, None

    times = jnp.arange(steps, dtype=start.dtype) / steps
    return jax.lax.scan(step, start, times)[0]
