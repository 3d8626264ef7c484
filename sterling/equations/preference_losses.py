"""Losses of preference learning, per pair or per answer (average them).

An answer's *gain* is log pi(y|x) - log pi_ref(y|x), summed over its tokens (:func:`total`), pi the
policy and pi_ref a frozen reference. z = beta (gain of the chosen - gain of the rejected).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Pair = Float[Array, "pair"]
Number = Float[Array, ""] | float


def sequence_log_prob(
    log_prob: Float[Array, "row token"], mask: Bool[Array, "row token"]
) -> Float[Array, "row"]:
    """Return each answer's log-probability, the sum over its tokens."""
    return jnp.sum(jnp.where(mask, log_prob, 0.0), -1)


def mean_log_prob(
    log_prob: Float[Array, "row token"], mask: Bool[Array, "row token"]
) -> Float[Array, "row"]:
    """Return each answer's mean log-probability per token; 0 for answers without tokens."""
    return sequence_log_prob(log_prob, mask) / jnp.maximum(
        jnp.sum(mask.astype(log_prob.dtype), -1), 1.0
    )


def dpo(chosen: Pair, rejected: Pair, beta: Number = 0.1, smoothing: Number = 0.0) -> Pair:
    """Return DPO's loss -(1 - e) log sigma(z) - e log sigma(-z) (Rafailov 2023, arXiv:2305.18290,
    eq. 7).

    ``smoothing`` e is the assumed share of pairs with swapped labels (conservative DPO, Mitchell
    2023).
    """
    z = beta * (chosen - rejected)
    return -(1.0 - smoothing) * jax.nn.log_sigmoid(z) - smoothing * jax.nn.log_sigmoid(-z)


def ipo(
    chosen: Pair,
    rejected: Pair,
    beta: Number = 0.1,
    lengths: tuple[Pair, Pair] | None = None,
) -> Pair:
    """Return IPO's loss (gain of the chosen - gain of the rejected - 1 / (2 beta))^2 (Azar 2023,
    arXiv:2310.12036, eq. 17, where ``beta`` is called tau).

    ``lengths``: tokens of the chosen and of the rejected answers. With them gains are per token, as
    the authors say they ran it and as TRL does. Without them it is the paper's equation.
    """
    if lengths is not None:
        chosen, rejected = chosen / lengths[0], rejected / lengths[1]
    return jnp.square(chosen - rejected - 0.5 / beta)


def hinge(chosen: Pair, rejected: Pair, beta: Number = 0.1) -> Pair:
    """Return the hinge loss max(0, 1 - z) (SLiC; Zhao 2023, arXiv:2305.10425, with DPO's gains)."""
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
    """Return KTO's loss w (1 - sigma(+-beta (gain - kl))), + for ``desirable`` answers (Ethayarajh
    2024, arXiv:2402.01306, section 4.1). Answers are single, not in pairs.

    ``kl`` is the reference point of :func:`kto_reference`.
    """
    z = beta * (gain - jax.lax.stop_gradient(kl))
    good = weight_desirable * jax.nn.sigmoid(-z)
    return jnp.where(desirable, good, weight_undesirable * jax.nn.sigmoid(z))


def kto_reference(mismatched_gain: Float[Array, "row"]) -> Float[Array, ""]:
    """Return max(0, mean gain of answers to *other* prompts), KTO's estimate of the KL divergence
    (section 4.1), without gradient."""
    return jax.lax.stop_gradient(jnp.maximum(jnp.mean(mismatched_gain), 0.0))


def orpo(chosen: Pair, rejected: Pair, beta: Number = 0.1) -> Pair:
    """Return ORPO's odds-ratio loss -beta log sigma(log odds(chosen) - log odds(rejected)), odds(p)
    = p / (1 - p) (Hong 2024, arXiv:2403.07691, eq. 7, where ``beta`` is called lambda).

    ``chosen`` and ``rejected`` are log-probabilities *per token* of the policy (:func:`mean`);
    there is no reference. The whole loss adds the chosen answers' negative log-likelihood.
    """
    odds = chosen - rejected - (_log1mexp(chosen) - _log1mexp(rejected))
    return -beta * jax.nn.log_sigmoid(odds)


def simpo(chosen: Pair, rejected: Pair, beta: Number = 2.0, margin: Number = 1.0) -> Pair:
    """Return SimPO's loss -log sigma(beta (chosen - rejected) - margin) of log-probabilities *per
    token* (Meng 2024, arXiv:2405.14734, eq. 6, where ``margin`` is called gamma); there is no
    reference."""
    return -jax.nn.log_sigmoid(beta * (chosen - rejected) - margin)


def bradley_terry(
    chosen: Pair, rejected: Pair, margin: Pair | float = 0.0, centring: Number = 0.0
) -> Pair:
    """Return -log sigma(r_c - r_r - margin) + centring (r_c + r_r)^2 of a reward model's scores.

    ``margin``: by how much the chosen score should exceed the other (Touvron 2023,
    arXiv:2307.09288, eq. 2). ``centring`` keeps scores near 0; the first term alone does not fix
    their mean (Eisenstein 2023, arXiv:2312.09244).
    """
    loss = -jax.nn.log_sigmoid(chosen - rejected - margin)
    return loss + centring * jnp.square(chosen + rejected)


def _log1mexp(x: Pair) -> Pair:
    """Return log(1 - exp(x)) for x < 0, accurate near 0 and far from it; x is at most -1e-7."""
    x = jnp.minimum(x, -1e-7)
    near = x > -0.6931472
    return jnp.where(
        near,
        jnp.log(-jnp.expm1(jnp.where(near, x, -1.0))),
        jnp.log1p(-jnp.exp(jnp.where(near, -1.0, x))),
    )
