"""Random policy valuation (ROVER; He 2025, arXiv:2509.24981).

Q^u is the value of acting once and then uniformly at random:

    Q^u(s, a) = r(s, a) + mean over the choices a' in s' of Q^u(s', a')                     (1)

Theorem 3.1: where transitions are deterministic, states form a tree and the only reward is 0 or
R > 0 at the end, acting greedily on Q^u is optimal. For Q^u(s, a) is R times the chance that random
steps from there succeed: it is positive exactly where success can still be reached, so the greedy
action never leaves the reachable part, and the tree ends. It fails for rewards of several sizes (a
sure 0.4 beats a random 1 in 3), and where the world takes part in the choice of the next state.

ROVER acts by softmax(Q^u / rho), which keeps every way that leads to success, and stores Q^u in the
language model itself:

    Q(s, a) = rho (log pi(a|s) - log pi_old(a|s))                                           (2)

fitted to (1) by least squares, the target a constant. The reward is centred within the prompt's
group (:func:`sterling.equations.group.advantages`, "mean" / "none") and given to every token.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Tokens = Float[Array, "row token"]
Number = Float[Array, ""] | float


def uniform_target(
    reward: Float[Array, "..."],
    next_q: Float[Array, "... choice"],
    legal: Bool[Array, "... choice"],
) -> Float[Array, "..."]:
    """Equation (1), a constant: ``next_q`` of s' averaged over its ``legal`` choices; where there
    are none the episode is over and the reward alone counts."""
    count = jnp.sum(legal.astype(next_q.dtype), -1)
    mean = jnp.sum(jnp.where(legal, next_q, 0.0), -1) / jnp.maximum(count, 1.0)
    return jax.lax.stop_gradient(reward + mean)


def log_policy(
    q: Float[Array, "... choice"], legal: Bool[Array, "... choice"], rho: Number
) -> Float[Array, "... choice"]:
    """log softmax(Q / rho) over the ``legal`` choices, minus infinity elsewhere."""
    return jax.nn.log_softmax(jnp.where(legal, q / rho, -jnp.inf))


def implied_q(
    log_prob: Float[Array, "..."], old: Float[Array, "..."], rho: Number = 1.0
) -> Float[Array, "..."]:
    """Equation (2), of sampled tokens or of all choices; no gradient through ``old``."""
    return rho * (log_prob - jax.lax.stop_gradient(old))


def error(
    q: Tokens, mean_q: Tokens, reward: Float[Array, "row"], mask: Bool[Array, "row token"]
) -> Tokens:
    """(Q(s_t, a_t) - sg(r + mean_a' Q(s_{t+1}, a')))^2 of every sampled token, 0 elsewhere.

    ``q``: :func:`implied_q` of the tokens. ``mean_q``: its mean over the vocabulary in the state
    that the token was sampled in, so the next state's is the next column; where that was not
    sampled there is none, so a row is one answer, not several turns. ``reward``: centred, one per
    row.
    """
    after = jnp.concatenate([mask[:, 1:], jnp.zeros_like(mask[:, :1])], 1)
    ahead = jnp.concatenate([mean_q[:, 1:], jnp.zeros_like(mean_q[:, :1])], 1)
    target = jax.lax.stop_gradient(reward[:, None] + jnp.where(after, ahead, 0.0))
    return jnp.where(mask, jnp.square(q - target), 0.0)
