"""Ratios of two policies' probabilities of the tokens of an answer.

Arrays are ``(row, token)``; ``mask`` holds at tokens that the policy sampled. Outside it log-ratios
are 0 and weights 1, whatever the log-probabilities are.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sterling.lookup.name_suggestions import did_you_mean
from sterling.types import Mistake

Tokens = Float[Array, "row token"]
Mask = Bool[Array, "row token"]
RATIO_LEVELS = ("token", "sequence", "sum")


def log_ratio(log_prob: Tokens, old: Tokens, mask: Mask, level: str) -> Tokens:
    """Return log r, the input of the policy's losses; gradients flow only through ``log_prob``.

    With l_t = log_prob_t - old_t and n tokens in the row:

        token      l_t                             (PPO, GRPO, DAPO)
        sequence   (1/n) sum_u l_u in value, with the gradient of l_t alone:
                   sg(mean l) + l_t - sg(l_t)      (GSPO-token, arXiv:2507.18071, eq. 14)
        sum        sum_u l_u, value and gradient   (the answer's own ratio: RLOO)

    "sequence" has the gradient of GSPO itself (eq. 7, through the mean) if a row's tokens share
    one advantage and one weight: sum_t (1/n) grad l_t = grad mean(l). GSPO is this level with the
    aggregation "sequence"; the aggregation "token" weights its rows by their lengths. "sum" is the
    same number at every token of a row, so the row's loss counts as often as its weights sum to:
    aggregate it by "sequence" too.

    Raises Mistake for unknown levels.
    """
    change = jnp.where(mask, log_prob - jax.lax.stop_gradient(old), 0.0)
    if level == "token":
        return change
    total = jnp.sum(change, -1, keepdims=True)
    if level == "sum":
        return jnp.where(mask, total, 0.0)
    if level != "sequence":
        near = did_you_mean(level, RATIO_LEVELS, f"use one of {', '.join(RATIO_LEVELS)}")
        raise Mistake(f"Unknown level {level!r}{near}")
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
    """Return the weights min(pi_proximal / pi_behaviour, ``cap``) of stale samples, no gradient.

    ``behaviour`` is the policy that sampled, ``proximal`` the one at the start of the update. The
    weight multiplies a loss whose ratio is to ``proximal`` (decoupled PPO; Hilton 2022,
    arXiv:2110.00641; truncated: Ionides 2008). ``level`` as in :func:`log_ratio`; "sequence" is
    the geometric mean of the row's ratios. A ``cap`` of infinity does not truncate; most systems
    use 2.
    """
    return jnp.minimum(_importance_weight(proximal, behaviour, mask, level), cap)


def within_ratio_bounds(
    proximal: Tokens,
    behaviour: Tokens,
    mask: Mask,
    level: str = "token",
    *,
    low: Float[Array, ""] | float,
    high: Float[Array, ""] | float,
) -> Mask:
    """Return the mask of sampled tokens whose weight pi_proximal / pi_behaviour lies in [``low``,
    ``high``].

    The others are left out of the loss but stay in its denominator: see ``counted`` in
    :mod:`sterling.equations.token_averages`. Levels "sum" and "sequence" reject whole rows.
    """
    weight = _importance_weight(proximal, behaviour, mask, level)
    return mask & (weight >= low) & (weight <= high)


def _importance_weight(proximal: Tokens, behaviour: Tokens, mask: Mask, level: str) -> Tokens:
    change = log_ratio(proximal, behaviour, mask, level)
    return jnp.exp(jax.lax.stop_gradient(change))
