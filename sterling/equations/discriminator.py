"""Losses of a discriminator: a network whose logit says whose rows they are, own or an expert's."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from sterling.equations.masked_average import masked_mean


def discriminator_loss(
    own: Float[Array, "row"],
    expert: Float[Array, "other"],
    own_mask: Bool[Array, "row"],
    expert_mask: Bool[Array, "other"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return E_own[ -log(1 - D) ] + E_expert[ -log D ] of logits, with D their sigmoid, and the
    share of rows told right, where either side counts half (Goodfellow 2014, arXiv:1406.2661)."""
    loss = masked_mean(jax.nn.softplus(own), own_mask)
    loss += masked_mean(jax.nn.softplus(-expert), expert_mask)
    right = masked_mean((own < 0.0).astype(own.dtype), own_mask)
    right += masked_mean((expert > 0.0).astype(own.dtype), expert_mask)
    return loss, 0.5 * right


def gradient_penalty(
    logit: Callable[[Float[Array, "inputs"]], Float[Array, ""]],
    own: Float[Array, "row inputs"],
    expert: Float[Array, "row inputs"],
    mask: Bool[Array, "row"],
    key: Key[Array, ""],
    *,
    slope: float = 0.0,
) -> Float[Array, ""]:
    """Return E[ (|d logit / dx| - slope)^2 ] at random mixtures x of own and expert rows, with
    ``slope`` 1 in Gulrajani 2017 (arXiv:1704.00028), 0 in Mescheder 2018 (arXiv:1801.04406)."""
    share = jax.random.uniform(key, (len(own), 1))
    slopes = jax.vmap(jax.grad(logit))(share * own + (1.0 - share) * expert)
    squares = jnp.sum(jnp.square(slopes), -1)
    if slope:  # whose square root has no gradient at 0
        squares = jnp.square(jnp.sqrt(squares + 1e-12) - slope)
    return masked_mean(squares, mask)
