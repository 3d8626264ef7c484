"""Diagonal complex recurrences h' = a h + b, with resets, all rows by one associative scan."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Complex, Float


def unroll_diagonal(
    decay: Complex[Array, "width"],
    given: Complex[Array, "time env width"],
    hidden: Float[Array, "env numbers"],
    begins: Bool[Array, "time env"],
) -> Float[Array, "time env numbers"]:
    """Return the memory after every row: a is ``decay``, and 0 in a row that ``begins`` an episode;
    b is ``given``. The composition of such maps is one of them, so resets stay inside the scan
    (Lu 2023, arXiv:2303.03982)."""
    kept = jnp.where(begins[..., None], 0.0, along(decay, given))
    given = given.at[0].add(kept[0] * to_complex(hidden))
    return to_real(jax.lax.associative_scan(_compose, (kept, given))[1])


def along(row: Array, x: Array) -> Array:
    """Return a row with as many axes as ``x``."""
    return row.reshape((1,) * (x.ndim - 1) + (-1,))


def to_complex(x: Float[Array, "... numbers"]) -> Complex[Array, "... width"]:
    """Return the complex numbers of real parts, then imaginary parts."""
    real, imaginary = jnp.split(x, 2, -1)
    return jax.lax.complex(real, imaginary)


def to_real(x: Complex[Array, "... width"]) -> Float[Array, "... numbers"]:
    """Return real parts, then imaginary parts."""
    return jnp.concatenate([x.real, x.imag], -1)


def _compose(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    """Compose two maps h -> a h + b, the second after the first."""
    (a, b), (after_a, after_b) = first, second
    return after_a * a, after_a * b + after_b
