"""How much likelier the tokens of an answer became: ratios of two policies' probabilities.

Arrays are ``(row, token)``; ``mask`` holds where the policy sampled the token. Outside of it
log-ratios are 0 and weights 1, whatever the log-probabilities there are.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sterling.naming import hint
from sterling.types import Mistake

Tokens = Float[Array, "row token"]
Mask = Bool[Array, "row token"]
LEVELS = ("token", "sequence", "sum")


def log_ratio(log_prob: Tokens, old: Tokens, mask: Mask, level: str) -> Tokens:
    """log r, of which the policy's losses are made; gradients flow through ``log_prob`` alone.

    With l_t = log_prob_t - old_t and n tokens in the row:

        token      l_t                             (PPO, GRPO, DAPO)
        sequence   (1/n) sum_u l_u in value, with the gradient of l_t alone:
                   sg(mean l) + l_t - sg(l_t)      (GSPO-token, arXiv:2507.18071, eq. 14)
        sum        sum_u l_u, value and gradient   (the answer's own ratio: RLOO)

    "sequence" has the gradient of GSPO itself (of eq. 7, through the mean) wherever a row's tokens
    share one advantage and one weight: sum_t (1/n) grad l_t = grad mean(l). GSPO is that with the
    aggregation "sequence"; by "token" its rows are weighted by their lengths. "sum" is the same
    number in every token, so weights that sum to w in a row count the row's loss w times: aggregate
    it by "sequence" too.
    Raises Mistake for levels that are not in ``LEVELS``.
    """
    change = jnp.where(mask, log_prob - jax.lax.stop_gradient(old), 0.0)
    if level == "token":
        return change
    total = jnp.sum(change, -1, keepdims=True)
    if level == "sum":
        return jnp.where(mask, total, 0.0)
    if level != "sequence":
        said = hint(level, LEVELS, f"use one of {', '.join(LEVELS)}")
        raise Mistake(f"unknown level {level!r}{said}")
    count = jnp.sum(mask.astype(change.dtype), -1, keepdims=True)
    mean = jax.lax.stop_gradient(total / jnp.maximum(count, 1.0))
    return jnp.where(mask, mean + change - jax.lax.stop_gradient(change), 0.0)


def behaviour_weight(
    proximal: Tokens,
    behaviour: Tokens,
    mask: Mask,
    cap: Float[Array, ""] | float = 2.0,
    level: str = "token",
) -> Tokens:
    """min(pi_proximal / pi_behaviour, ``cap``), a constant: what a stale sample counts.

    ``behaviour`` is the policy that sampled, ``proximal`` the one that the update started from;
    multiplied into a loss whose ratio is to ``proximal`` (decoupled PPO; Hilton 2022,
    arXiv:2110.00641; truncated: Ionides 2008). ``level`` as in :func:`log_ratio`, "sequence"
    the geometric mean of the row's ratios. A ``cap`` of infinity leaves weights whole; 2 is what
    most systems take.
    """
    return jnp.minimum(_weight(proximal, behaviour, mask, level), cap)


def kept(
    proximal: Tokens,
    behaviour: Tokens,
    mask: Mask,
    level: str = "token",
    *,
    low: Float[Array, ""] | float,
    high: Float[Array, ""] | float,
) -> Mask:
    """Sampled tokens whose weight pi_proximal / pi_behaviour lies in [``low``, ``high``].

    The others are left out of the loss and stay in its denominator: see ``counted`` in
    :mod:`sterling.equations.aggregate`. By "sum" or "sequence" whole rows go.
    """
    weight = _weight(proximal, behaviour, mask, level)
    return mask & (weight >= low) & (weight <= high)


def _weight(proximal: Tokens, behaviour: Tokens, mask: Mask, level: str) -> Tokens:
    change = log_ratio(proximal, behaviour, mask, level)
    return jnp.exp(jax.lax.stop_gradient(change))
