"""How far a policy went from a reference, from log-probabilities of sampled tokens.

With x sampled from p (the policy) and l = log p(x) - log q(x), q the reference (Schulman 2020,
"Approximating KL divergence"):

    k1 = l                 mean KL(p || q); sometimes negative
    k2 = l^2 / 2           mean close to it where p and q are close
    k3 = exp(-l) - 1 + l   mean KL(p || q); never negative

Their means are one matter, the gradients that they give a policy another. As a cost within the
reward (a constant times grad log p) and as a term of the loss (differentiated at fixed samples):

         in the reward: E[k grad log p]          in the loss: E[grad k]
    k1   grad KL(p || q), what one means         0: nothing but noise, do not use it there
    k2   neither                                 grad KL(p || q), what one means
    k3   grad KL(p || q) - grad KL(q || p)       grad KL(q || p), the other direction's (GRPO)

These hold on policy, without clamps. :func:`corrected` multiplies by the ratio r = p / p_old, of
samples from p_old, and lets the gradient through it:

    E_old[r k1] = E_old[r k3] = KL(p || q) as a function of p, so the mean of grad(r k) is
                                grad KL(p || q), on policy (where r = 1) and off (DeepSeek-V3.2)

The exponentials' arguments are cut to +-20.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sterling.naming import hint
from sterling.types import Mistake

KINDS = ("k1", "k2", "k3")
FARTHEST = 20.0  # |l| and |log r| beyond which exponentials are cut


def estimate(
    log_prob: Float[Array, "..."], reference: Float[Array, "..."], kind: str
) -> Float[Array, "..."]:
    """k1, k2 or k3 of every token. Raises Mistake for other kinds."""
    away = log_prob - jax.lax.stop_gradient(reference)
    if kind == "k1":
        return away
    if kind == "k2":
        return 0.5 * jnp.square(away)
    if kind == "k3":
        return jnp.expm1(jnp.clip(-away, -FARTHEST, FARTHEST)) + away
    said = hint(kind, KINDS, f"use one of {', '.join(KINDS)}")
    raise Mistake(f"unknown KL estimator {kind!r}{said}")


def corrected(
    log_prob: Float[Array, "..."],
    reference: Float[Array, "..."],
    log_ratio: Float[Array, "..."],
    kind: str,
) -> Float[Array, "..."]:
    """r times the estimate, r = exp(``log_ratio``) of :mod:`sterling.equations.likelihood` by
    "token": the term of a loss whose gradient is KL(p || q)'s, for "k1" and "k3"."""
    ratio = jnp.exp(jnp.clip(log_ratio, -FARTHEST, FARTHEST))
    return ratio * estimate(log_prob, reference, kind)


def entropy(logits: Float[Array, "... choice"]) -> Float[Array, "..."]:
    """-sum p log p, in nats; a logit of minus infinity is a choice of probability 0."""
    log_prob = jax.nn.log_softmax(logits)
    finite = jnp.where(jnp.isneginf(logits), 0.0, log_prob)
    return -jnp.sum(jnp.exp(log_prob) * finite, -1)
