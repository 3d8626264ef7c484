"""Losses on answers that someone preferred, per pair or per answer (average them).

An answer's *gain* is log pi(y|x) - log pi_ref(y|x), summed over its tokens (:func:`total`), pi the
policy and pi_ref a frozen reference. z = beta (gain of the chosen - gain of the rejected).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Pair = Float[Array, "pair"]
Number = Float[Array, ""] | float


def total(
    log_prob: Float[Array, "row token"], mask: Bool[Array, "row token"]
) -> Float[Array, "row"]:
    """Log-probability of each answer: the sum over its tokens."""
    return jnp.sum(jnp.where(mask, log_prob, 0.0), -1)


def mean(
    log_prob: Float[Array, "row token"], mask: Bool[Array, "row token"]
) -> Float[Array, "row"]:
    """Log-probability per token of each answer; 0 for one without tokens."""
    return total(log_prob, mask) / jnp.maximum(jnp.sum(mask.astype(log_prob.dtype), -1), 1.0)


def dpo(chosen: Pair, rejected: Pair, beta: Number = 0.1, smoothing: Number = 0.0) -> Pair:
    """-(1 - e) log sigma(z) - e log sigma(-z) (Rafailov 2023, arXiv:2305.18290, eq. 7).

    ``smoothing`` e is the share of pairs that are believed the wrong way round (conservative DPO,
    Mitchell 2023).
    """
    z = beta * (chosen - rejected)
    return -(1.0 - smoothing) * jax.nn.log_sigmoid(z) - smoothing * jax.nn.log_sigmoid(-z)


def ipo(
    chosen: Pair,
    rejected: Pair,
    beta: Number = 0.1,
    lengths: tuple[Pair, Pair] | None = None,
) -> Pair:
    """(gain of the chosen - gain of the rejected - 1 / (2 beta))^2 (Azar 2023, arXiv:2310.12036,
    eq. 17, whose tau is ``beta``).

    ``lengths``: tokens of the chosen and of the rejected answers; then gains are per token, as its
    authors have said they ran it and TRL does. Without, as the paper writes it.
    """
    if lengths is not None:
        chosen, rejected = chosen / lengths[0], rejected / lengths[1]
    return jnp.square(chosen - rejected - 0.5 / beta)


def hinge(chosen: Pair, rejected: Pair, beta: Number = 0.1) -> Pair:
    """max(0, 1 - z) (SLiC; Zhao 2023, arXiv:2305.10425, with DPO's gains)."""
    return jnp.maximum(0.0, 1.0 - beta * (chosen - rejected))


def kto(
    gain: Float[Array, "row"],
    desirable: Bool[Array, "row"],
    kl: Float[Array, ""],
    beta: Number = 0.1,
    *,
    weight_desirable: Number = 1.0,
    weight_undesirable: Number = 1.0,
) -> Float[Array, "row"]:
    """w (1 - sigma(+-beta (gain - kl))), + where the answer is ``desirable`` (Ethayarajh 2024,
    arXiv:2402.01306, section 4.1). Answers are single, not in pairs.

    ``kl`` is the reference point of :func:`kto_reference`.
    """
    z = beta * (gain - jax.lax.stop_gradient(kl))
    good = weight_desirable * jax.nn.sigmoid(-z)
    return jnp.where(desirable, good, weight_undesirable * jax.nn.sigmoid(z))


def kto_reference(mismatched_gain: Float[Array, "row"]) -> Float[Array, ""]:
    """max(0, mean gain of answers to *other* prompts), a constant: KTO's estimate of the KL
    divergence (section 4.1)."""
    return jax.lax.stop_gradient(jnp.maximum(jnp.mean(mismatched_gain), 0.0))


def orpo(chosen: Pair, rejected: Pair, beta: Number = 0.1) -> Pair:
    """-beta log sigma(log odds(chosen) - log odds(rejected)), odds(p) = p / (1 - p) (Hong 2024,
    arXiv:2403.07691, eq. 7; its lambda is ``beta``).

    ``chosen`` and ``rejected`` are log-probabilities *per token* of the policy (:func:`mean`);
    there is no reference. The whole loss adds the chosen answers' negative log-likelihood.
    """
    odds = chosen - rejected - (_log1mexp(chosen) - _log1mexp(rejected))
    return -beta * jax.nn.log_sigmoid(odds)


def simpo(chosen: Pair, rejected: Pair, beta: Number = 2.0, margin: Number = 1.0) -> Pair:
    """-log sigma(beta (chosen - rejected) - margin) of log-probabilities *per token* (Meng 2024,
    arXiv:2405.14734, eq. 6, whose gamma is ``margin``); there is no reference."""
    return -jax.nn.log_sigmoid(beta * (chosen - rejected) - margin)


def bradley_terry(
    chosen: Pair, rejected: Pair, margin: Pair | float = 0.0, centring: Number = 0.0
) -> Pair:
    """-log sigma(r_c - r_r - margin) + centring (r_c + r_r)^2 of a reward model's scores.

    ``margin``: by how much the chosen one should win (Touvron 2023, arXiv:2307.09288, eq. 2).
    ``centring`` keeps scores near 0, where the first term leaves them free to drift (Eisenstein
    2023, arXiv:2312.09244).
    """
    loss = -jax.nn.log_sigmoid(chosen - rejected - margin)
    return loss + centring * jnp.square(chosen + rejected)


def _log1mexp(x: Pair) -> Pair:
    """log(1 - exp(x)) for x < 0, exact near 0 and far from it; x = 0 counts as -1e-7."""
    x = jnp.minimum(x, -1e-7)
    near = x > -0.6931472
    return jnp.where(
        near,
        jnp.log(-jnp.expm1(jnp.where(near, x, -1.0))),
        jnp.log1p(-jnp.exp(jnp.where(near, -1.0, x))),
    )
