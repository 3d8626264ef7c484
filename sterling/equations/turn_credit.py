"""Returns and advantages of conversations, in which some tokens are not the policy's.

``mask`` holds at the policy's own steps: tokens that it sampled, or turns that took place. What
lies between (tool output, observations, padding) is not a step: the recursions below skip it,
without discount or decay.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sterling.equations.line_rows import line_sum

Steps = Float[Array, "row step"]
Tokens = Float[Array, "row token"]
Turns = Float[Array, "row turn"]
Number = Float[Array, ""] | float


def masked_gae(
    reward: Steps,
    value: Steps,
    mask: Bool[Array, "row step"],
    last_value: Float[Array, "row"],
    *,
    gamma: Number = 1.0,
    lam: Number = 1.0,
) -> Steps:
    """Return generalised advantage estimates (Schulman 2016, eq. 16) of the policy's own steps.

        A_t = r_t + gamma V_s - V_t + gamma lam A_s,    s the policy's next step after t

    After a row's last step V_s is ``last_value`` (0 if the answer ended, V if it was truncated) and
    A_s is 0. A reward between steps belongs to the step before it; before the first step it is
    dropped. The advantage is 0 where ``mask`` does not hold. The target of V is A + V.
    """

    def back(
        following: tuple[Array, Array, Array], current: tuple[Array, Array, Array]
    ) -> tuple[tuple[Array, Array, Array], Array]:
        next_value, advantage, pending = following
        reward, value, own = current
        total = reward + pending
        estimate = total + gamma * next_value - value + gamma * lam * advantage
        carried = (
            jnp.where(own, value, next_value),
            jnp.where(own, estimate, advantage),
            jnp.where(own, 0.0, total),
        )
        return carried, jnp.where(own, estimate, 0.0)

    start = (last_value, jnp.zeros_like(last_value), jnp.zeros_like(last_value))
    by_step = (reward.T, value.T, mask.T)
    return jax.lax.scan(back, start, by_step, reverse=True)[1].T


def returns_to_go(reward: Steps, mask: Bool[Array, "row step"], gamma: Number = 1.0) -> Steps:
    """Return the discounted return r_t + gamma r_s + ... of each own step on; 0 elsewhere."""
    nothing = jnp.zeros_like(reward)
    return masked_gae(reward, nothing, mask, nothing[:, 0], gamma=gamma)


def turn_gae(
    reward: Turns,
    value: Tokens,
    turn: Int[Array, "row token"],
    mask: Bool[Array, "row token"],
    last_value: Float[Array, "row"],
    *,
    gamma: Number = 1.0,
    lam: Number = 1.0,
) -> Tokens:
    """Return GAE with turns as steps: the discount is per turn, and every token of a turn gets the
    turn's advantage.

    ``reward``: each turn's reward. ``turn``: each token's turn, from 0 (used where ``mask`` holds).
    A turn's value is that of its first own token; a turn without own tokens is not a step, and its
    reward goes to the turn before.
    """
    first_value, valid = first_token_of_turn(value, turn, mask, reward.shape[1])
    return spread_to_tokens(
        masked_gae(reward, first_value, valid, last_value, gamma=gamma, lam=lam), turn, mask
    )


def turn_returns(
    reward: Turns,
    turn: Int[Array, "row token"],
    mask: Bool[Array, "row token"],
    gamma: Number = 1.0,
    rows_before: Int[Array, "row"] | None = None,
) -> Tokens:
    """Return for every own token the return from its turn on, discounted per turn; no critic. With
    ``rows_before`` (equations/line_rows.py) it counts turns in later rows of the line too."""
    valid = first_token_of_turn(jnp.zeros_like(mask, reward.dtype), turn, mask, reward.shape[1])[1]
    if rows_before is not None:
        valid = line_sum(valid.astype(reward.dtype), rows_before) > 0.0
        reward = line_sum(reward, rows_before)
    return spread_to_tokens(returns_to_go(reward, valid, gamma), turn, mask)


def spread_to_tokens(
    of_turn: Turns, turn: Int[Array, "row token"], mask: Bool[Array, "row token"]
) -> Tokens:
    """Give each own token its turn's value of ``of_turn``; 0 elsewhere."""
    at = jnp.clip(turn, 0, of_turn.shape[1] - 1)
    return jnp.where(mask, jnp.take_along_axis(of_turn, at, 1), 0.0)


def sum_by_turn(
    of_token: Tokens, turn: Int[Array, "row token"], mask: Bool[Array, "row token"], turns: int
) -> Turns:
    """Return for each turn the sum of ``of_token`` over its own tokens."""
    rows = jnp.broadcast_to(jnp.arange(turn.shape[0])[:, None], turn.shape)
    at = jnp.where(mask, turn, turns)  # past the end: dropped
    empty = jnp.zeros((turn.shape[0], turns), of_token.dtype)
    return empty.at[rows, at].add(jnp.where(mask, of_token, 0.0), mode="drop")


def first_token_of_turn(
    of_token: Tokens, turn: Int[Array, "row token"], mask: Bool[Array, "row token"], turns: int
) -> tuple[Turns, Bool[Array, "row turn"]]:
    """Return ``of_token`` at each turn's first own token, and which turns have one (else 0)."""
    tokens = turn.shape[1]
    rows = jnp.broadcast_to(jnp.arange(turn.shape[0])[:, None], turn.shape)
    place = jnp.broadcast_to(jnp.arange(tokens)[None], turn.shape)
    at = jnp.where(mask, turn, turns)
    none = jnp.full((turn.shape[0], turns), tokens)
    first = none.at[rows, at].min(place, mode="drop")
    valid = first < tokens
    first_values = jnp.take_along_axis(of_token, jnp.minimum(first, tokens - 1), 1)
    return jnp.where(valid, first_values, 0.0), valid
