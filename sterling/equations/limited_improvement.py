"""Policy improvement under limits of the KL divergence, by duality (MPO, V-MPO).

Dual variables (a temperature, multipliers of limits) are positive. They are learned as real numbers
x that stand for softplus(x) + 1e-8.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sterling.equations.masked_average import masked_mean

LEAST = 1e-8  # of a dual variable
NEVER = -1e30  # log-probability of what is left out: finite, so that gradients stay finite


def positive(raw: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the dual variable that ``raw`` stands for."""
    return jax.nn.softplus(raw) + LEAST


def raw_dual(value: Float[Array, ""] | float) -> Float[Array, ""]:
    """Return the real number that stands for a dual variable, the inverse of :func:`positive`."""
    above = jnp.maximum(jnp.asarray(value) - LEAST, LEAST)
    return above + jnp.log(-jnp.expm1(-above))


def improved_weights(
    value: Float[Array, "..."],
    log_prior: Float[Array, "..."],
    temperature: Float[Array, ""],
    axis: int = 0,
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Return the distribution q that maximises E_q[value] near a prior p, and log E_p[e^(value /
    temperature)].

        q = p e^(value / temperature) / E_p[e^(value / temperature)]

    q is a constant; both are over ``axis`` (Abdolmaleki 2018, arXiv:1806.06920, section 4.1). If p
    are samples of equal weight, ``log_prior`` is minus the logarithm of their number.
    """
    logits = log_prior + value / temperature
    weight = jax.nn.softmax(jax.lax.stop_gradient(logits), axis)
    return weight, jax.nn.logsumexp(logits, axis)


def temperature_loss(
    temperature: Float[Array, ""], log_mean: Float[Array, "..."], limit: Float[Array, ""] | float
) -> Float[Array, "..."]:
    """Return eta (limit + log E_p[e^(value / eta)]), whose minimiser eta gives q = p e^(value /
    eta) a KL(q || p) of ``limit``."""
    return temperature * (limit + log_mean)


def limited_kl_loss(
    kl: Float[Array, "..."], multiplier: Float[Array, ""], limit: Float[Array, ""] | float
) -> Float[Array, "..."]:
    """Return a [kl] + [a] (limit - kl) with the multiplier a, whose gradient reaches ``kl`` by the
    first term alone and ``multiplier`` by the second alone (in brackets)."""
    constant = jax.lax.stop_gradient
    return constant(multiplier) * kl + multiplier * (limit - constant(kl))


def limited_kl_losses(
    kls: dict[str, Float[Array, "row"]],
    multipliers: dict[str, Float[Array, ""]],
    limits: dict[str, Float[Array, ""] | float],
    mask: Bool[Array, "row"],
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Return the sum over parts of a KL of the mean of :func:`limited_kl_loss`, and metrics."""
    total, metrics = jnp.zeros(()), {}
    for name, kl in kls.items():
        total += masked_mean(limited_kl_loss(kl, multipliers[name], limits[name]), mask)
        metrics[f"policy/kl_{name}"] = masked_mean(kl, mask)
        metrics[f"policy/multiplier_{name}"] = multipliers[name]
    return total, metrics


def upper_half(x: Float[Array, "row"], mask: Bool[Array, "row"]) -> Bool[Array, "row"]:
    """Return which of the rows where ``mask`` holds are among the larger half of ``x``, rounded
    down but at least one; ties with the smallest of them count."""
    count = jnp.sum(mask)
    falling = -jnp.sort(-jnp.where(mask, x, -jnp.inf))
    least = falling[jnp.maximum(count // 2, 1) - 1]
    return mask & (x >= least)
