"""The policy's loss of one token, by how its ratio is limited.

With r = exp(log-ratio) to the policy that sampled, A the advantage and sg a constant:

    none       -r A
    clip       -min(r A, clip(r, 1 - low, 1 + high) A)           (PPO; high > low: DAPO)
    dual       the same, but at most -c A where A < 0            (Ye 2020, arXiv:1912.09729)
    cispo      -sg(clip(r, 1 - low, 1 + high)) A log pi          (MiniMax-M1, arXiv:2506.13585)
    reinforce  -A log pi

``low`` and ``high`` are always distances from 1, also for "cispo": no lower bound is low = 1 (a
ratio is positive), and a cap at 5 is high = 4. TRL's CISPO takes the cap itself instead.
"clip" and "none" take log pi's gradient through r; "cispo" keeps it where r was clipped, which is
its point. At r = 1 every rule but "clip" and "dual" at bounds of 0 has REINFORCE's gradient.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sterling.naming import hint
from sterling.types import Mistake

Tokens = Float[Array, "row token"]
Number = Float[Array, ""] | float
RULES = ("none", "clip", "dual", "cispo", "reinforce")
FARTHEST = 20.0  # |log r| beyond which it is cut: exp(20) is 5e8, and inf * 0 would be NaN


def surrogate(
    log_ratio: Tokens,
    log_prob: Tokens,
    advantage: Tokens,
    rule: str,
    *,
    low: Number = 0.2,
    high: Number = 0.2,
    dual: Number = 3.0,
) -> tuple[Tokens, Bool[Array, "row token"]]:
    """The loss of every token (:mod:`sterling.equations.aggregate` reduces it), and where the limit
    changed it.

    ``dual`` is c > 1 + ``high``, and has a part in the rule "dual" alone; ``low`` and ``high`` have
    none in "none" and "reinforce". Log-ratios are cut to +-20 before the exponential (beyond it
    they pass no gradient). Raises Mistake for rules that are not in ``RULES``.
    """
    advantage = jax.lax.stop_gradient(advantage)
    ratio = jnp.exp(jnp.clip(log_ratio, -FARTHEST, FARTHEST))
    never = jnp.zeros_like(ratio, bool)
    if rule == "none":
        return -ratio * advantage, never
    if rule == "reinforce":
        return -advantage * log_prob, never
    limited = jnp.clip(ratio, 1.0 - low, 1.0 + high)
    if rule == "cispo":
        loss = -jax.lax.stop_gradient(limited) * advantage * log_prob
        return loss, (limited != ratio) & (advantage != 0.0)
    if rule not in RULES:
        said = hint(rule, RULES, f"use one of {', '.join(RULES)}")
        raise Mistake(f"unknown clip rule {rule!r}{said}")
    loss = -jnp.minimum(ratio * advantage, limited * advantage)
    below, above = (ratio < 1.0 - low) & (advantage < 0.0), (ratio > 1.0 + high) & (advantage > 0.0)
    if rule == "clip":
        return loss, below | above
    capped = (advantage < 0.0) & (loss > -dual * advantage)
    return jnp.where(capped, -dual * advantage, loss), below | above | capped
