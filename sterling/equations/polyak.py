"""Target networks that follow slowly (Polyak averaging)."""

from __future__ import annotations

from typing import TypeVar

import jax
from jaxtyping import Array, Float

T = TypeVar("T")


def polyak(slow: T, fast: T, tau: Float[Array, ""] | float) -> T:
    """Return slow + tau (fast - slow) for each leaf (Lillicrap 2016, section 3); tau = 1 copies."""
    return jax.tree.map(lambda s, f: s + tau * (f - s), slow, fast)
