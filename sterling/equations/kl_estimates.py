"""Estimators of the KL divergence from a reference policy, and the entropy.

With x sampled from p (the policy) and l = log p(x) - log q(x), q the reference (Schulman 2020,
"Approximating KL divergence"):

    k1 = l                 mean KL(p || q); sometimes negative
    k2 = l^2 / 2           mean close to it where p and q are close
    k3 = exp(-l) - 1 + l   mean KL(p || q); never negative

Estimators with the same mean give a policy different gradients. As a cost in the reward (a constant
times grad log p) and as a term of the loss (differentiated at fixed samples):

         in the reward: E[k grad log p]          in the loss: E[grad k]
    k1   grad KL(p || q), the intended one       0: only noise, do not use it there
    k2   neither                                 grad KL(p || q), the intended one
    k3   grad KL(p || q) - grad KL(q || p)       grad KL(q || p), the other direction's (GRPO)

These hold on policy, without clamps. :func:`corrected` multiplies by the ratio r = p / p_old, of
samples from p_old, and lets the gradient through it:

    E_old[r k1] = E_old[r k3] = KL(p || q) as a function of p, so the mean of grad(r k) is
                                grad KL(p || q), on policy (where r = 1) and off (DeepSeek-V3.2)

The arguments of exponentials are clipped to +-20.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sterling.lookup.name_suggestions import did_you_mean
from sterling.types import Mistake

KL_ESTIMATORS = ("k1", "k2", "k3")
MAX_LOG_RATIO = 20.0  # l and log r are clipped to +-20 before exponentials


def estimate_kl(
    log_prob: Float[Array, "..."], reference: Float[Array, "..."], kind: str
) -> Float[Array, "..."]:
    """Return the estimate k1, k2 or k3 of every token. Raises Mistake for other kinds."""
    difference = log_prob - jax.lax.stop_gradient(reference)
    if kind == "k1":
        return difference
    if kind == "k2":
        return 0.5 * jnp.square(difference)
    if kind == "k3":
        return jnp.expm1(jnp.clip(-difference, -MAX_LOG_RATIO, MAX_LOG_RATIO)) + difference
    near = did_you_mean(kind, KL_ESTIMATORS, f"use one of {', '.join(KL_ESTIMATORS)}")
    raise Mistake(f"Unknown KL estimator {kind!r}{near}")


def ratio_corrected_kl(
    log_prob: Float[Array, "..."],
    reference: Float[Array, "..."],
    log_ratio: Float[Array, "..."],
    kind: str,
) -> Float[Array, "..."]:
    """Return r times the estimate, r = exp(``log_ratio``) of the level "token"
    (:mod:`sterling.equations.likelihood_ratios`). As a loss its gradient is that of KL(p || q),
    for "k1" and "k3"."""
    ratio = jnp.exp(jnp.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))
    return ratio * estimate_kl(log_prob, reference, kind)


def entropy(logits: Float[Array, "... choice"]) -> Float[Array, "..."]:
    """Return the entropy -sum p log p, in nats; logits of minus infinity have probability 0."""
    log_prob = jax.nn.log_softmax(logits)
    finite = jnp.where(jnp.isneginf(logits), 0.0, log_prob)
    return -jnp.sum(jnp.exp(log_prob) * finite, -1)
