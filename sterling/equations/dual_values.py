"""Value losses of XQL and f-DVL: a soft maximum over logged actions, without querying others.

A state's value is the minimiser v of a convex loss of the errors u = Q(s, a) - v over the logged
actions; it lies between their mean and their largest value. All losses are per row.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def gumbel_loss(
    error: Float[Array, "..."],
    beta: Float[Array, ""] | float,
    clip: Float[Array, ""] | float,
) -> Float[Array, "..."]:
    """Return e^z - z - 1 with z = u / ``beta``, u = target - prediction (Garg 2023, eq. 11).

    Its derivative in the prediction is (1 - e^z) / beta, so its minimiser is where E[e^z] = 1:

        v = beta log E[e^(Q / beta)],

    the soft maximum: the largest target for beta -> 0, their mean for beta -> infinity. It is the
    maximum-likelihood location of targets with Gumbel noise of scale beta.

    Above z = ``clip`` the exponential continues along its tangent, e^c (1 + z - c), which is finite
    and convex and still raises the prediction. (The authors' code clips z there instead, which
    leaves the rows furthest above the prediction without any gradient.)
    """
    z = error / beta
    low = jnp.minimum(z, clip)
    slope = jnp.expm1(low)
    return slope - low + slope * (z - low)


def gumbel_scale(
    error: Float[Array, "..."],
    mask: Bool[Array, "..."],
    beta: Float[Array, ""] | float,
    clip: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """Return e^-m, with m the largest z of the masked rows, clipped to [0, ``clip``]: a constant
    for the batch that bounds the gradient of :func:`gumbel_loss` by 1 / beta.

    Adam is invariant to a constant scale, but not to one row whose exponential is a thousand times
    that of all others in its batch (Garg 2023, appendix C.3). Batches with large errors count less,
    so v comes out a little below the soft maximum.
    """
    largest = jnp.max(jnp.where(mask, error, 0.0), initial=0.0) / beta
    return jax.lax.stop_gradient(jnp.exp(-jnp.minimum(largest, clip)))


def dual_loss(
    error: Float[Array, "..."], weight: Float[Array, ""] | float, divergence: str
) -> Float[Array, "..."]:
    """Return lambda f*(u) - (1 - lambda) u with u = target - prediction (Sikchi 2024, eq. 15).

    The dual of maximising the return within an f-divergence of the data minimises over v
    (1 - lambda) E[v] + lambda E[f*(Q - v)], with f* the convex conjugate of f over non-negative
    densities (Q does not depend on v, so subtracting it from v changes no gradient). For u < 0,
    f* is replaced by 0, so that values above all targets gain nothing, and for lambda -> 1

        v -> max Q                                (Sikchi 2024, proposition 2; here u+ = max(u, 0))

    ``total_variation``, f(x) = |x - 1| / 2: f*(u) = u+. Then the loss is a quantile's: setting its
    derivative to 0 gives P(Q > v) = (1 - lambda) / lambda. It needs lambda > 1/2.

    ``chi_square``, f(x) = (x - 1)^2: f*(u) = u+ + u+^2 / 4, from maximising x u - (x - 1)^2 at
    x = 1 + u / 2. Then E[(1 + u / 2) 1(u > 0)] = (1 - lambda) / lambda: errors count in units of
    the return.

    Raises ValueError for any other divergence.
    """
    above = jnp.maximum(error, 0.0)
    if divergence == "total_variation":
        conjugate = above
    elif divergence == "chi_square":
        conjugate = above + 0.25 * jnp.square(above)
    else:
        raise ValueError(f"Unknown divergence {divergence!r}. Use total_variation or chi_square.")
    return weight * conjugate - (1.0 - weight) * error
