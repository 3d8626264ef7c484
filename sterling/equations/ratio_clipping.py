"""The policy-gradient loss of each token, by five rules that limit the probability ratio.

With r = exp(log-ratio) to the sampling policy, A the advantage and sg the stop-gradient:

    none       -r A
    clip       -min(r A, clip(r, 1 - low, 1 + high) A)           (PPO; high > low: DAPO)
    dual       the same, but at most -c A where A < 0            (Ye 2020, arXiv:1912.09729)
    cispo      -sg(clip(r, 1 - low, 1 + high)) A log pi          (MiniMax-M1, arXiv:2506.13585)
    reinforce  -A log pi

``low`` and ``high`` are always distances from 1, also for "cispo": low = 1 means no lower bound (a
ratio is positive), and high = 4 means a cap at 5. TRL's option for CISPO is the cap itself.
"clip" and "none" differentiate log pi through r; "cispo" keeps its gradient also where r was
clipped, which is its purpose. At r = 1 every rule has REINFORCE's gradient, except "clip" and
"dual" with bounds of 0.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sterling.lookup.name_suggestions import did_you_mean
from sterling.types import Mistake

Tokens = Float[Array, "row token"]
Number = Float[Array, ""] | float
CLIP_RULES = ("none", "clip", "dual", "cispo", "reinforce")
MAX_LOG_RATIO = 20.0  # log r is clipped to +-20: exp(20) is 5e8, and inf * 0 would be NaN


def surrogate_loss(
    log_ratio: Tokens,
    log_prob: Tokens,
    advantage: Tokens,
    rule: str,
    *,
    low: Number = 0.2,
    high: Number = 0.2,
    dual: Number = 3.0,
) -> tuple[Tokens, Bool[Array, "row token"]]:
    """Return every token's loss (:mod:`sterling.equations.token_averages` reduces it), and where
    the limit changed it.

    ``dual`` is c > 1 + ``high``, used only by the rule "dual"; "none" and "reinforce" ignore
    ``low`` and ``high``. Log-ratios are clipped to +-20 before the exponential (beyond that they
    have no gradient). Raises Mistake for unknown rules.
    """
    advantage = jax.lax.stop_gradient(advantage)
    ratio = jnp.exp(jnp.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))
    nowhere = jnp.zeros_like(ratio, bool)
    if rule == "none":
        return -ratio * advantage, nowhere
    if rule == "reinforce":
        return -advantage * log_prob, nowhere
    limited = jnp.clip(ratio, 1.0 - low, 1.0 + high)
    if rule == "cispo":
        loss = -jax.lax.stop_gradient(limited) * advantage * log_prob
        return loss, (limited != ratio) & (advantage != 0.0)
    if rule not in CLIP_RULES:
        near = did_you_mean(rule, CLIP_RULES, f"use one of {', '.join(CLIP_RULES)}")
        raise Mistake(f"Unknown clip rule {rule!r}{near}")
    loss = -jnp.minimum(ratio * advantage, limited * advantage)
    below, above = (ratio < 1.0 - low) & (advantage < 0.0), (ratio > 1.0 + high) & (advantage > 0.0)
    if rule == "clip":
        return loss, below | above
    capped = (advantage < 0.0) & (loss > -dual * advantage)
    return jnp.where(capped, -dual * advantage, loss), below | above | capped
