"""Numbers as distributions over bins: regression by cross entropy (Hafner 2023, DreamerV3,
arXiv:2301.04104, eq. 8 to 11).

    m_k     = (b_{k+1} - h(x)) / (b_{k+1} - b_k),   m_{k+1} = 1 - m_k,   b_k <= h(x) <= b_{k+1}
    loss    = -sum_i m_i log p_i
    mean    = h^-1(sum_i p_i b_i)

The bins b_i may be at any distances; h squashes numbers before they are put among them. The bins of
DreamerV3 are symexp of 255 numbers from -20 to 20, without h; those of TD-MPC2 (Hansen 2024,
arXiv:2310.16828) are ``Bins(make_support(-10.0, 10.0, 101), SYMLOG)``. Distributions over several
numbers are moved to bins at equal distances by ``categorical_values.project_onto_support``.
Bins as large as e^20 should be exact opposites on both sides of 0: of symexp of float32's
``linspace(-20, 20)`` equal probabilities have the mean -6, not 0.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sterling.equations.categorical_values import cross_entropy

Squash = tuple[Callable[[Array], Array], Callable[[Array], Array]]  # h and its inverse


class Bins(eqx.Module):
    """Bins b_i, in ascending order, among which numbers lie; those beyond both ends are clipped."""

    support: Float[Array, "bin"]
    squash: Squash | None = eqx.field(static=True, default=None)

    def target(self, x: Float[Array, "..."]) -> Float[Array, "... bin"]:
        """Return the probabilities m of numbers: at most two bins have any, with h(x) as mean."""
        support = self.support
        y = jnp.clip(x if self.squash is None else self.squash[0](x), support[0], support[-1])
        below = jnp.searchsorted(support[1:-1], y, side="right", method="compare_all")
        low, high = support[below], support[below + 1]
        upper = ((y - low) / (high - low))[..., None]
        first, second = (jax.nn.one_hot(k, len(support)) for k in (below, below + 1))
        return (1.0 - upper) * first + upper * second

    def mean(self, logits: Float[Array, "... bin"]) -> Float[Array, "..."]:
        """Return the numbers whose distributions ``logits`` give.

        Bins are added in pairs from both ends, so large ones of both signs cancel exactly.
        """
        parts = jax.nn.softmax(logits) * self.support.reshape((1,) * (logits.ndim - 1) + (-1,))
        total = 0.5 * jnp.sum(parts + parts[..., ::-1], -1)
        return total if self.squash is None else self.squash[1](total)

    def loss(self, logits: Float[Array, "... bin"], x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return the cross entropy of ``x``, in nats; no gradient flows into ``x``."""
        return cross_entropy(jax.lax.stop_gradient(self.target(x)), logits)
