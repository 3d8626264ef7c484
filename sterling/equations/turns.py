"""Credit in answers of several turns, where some tokens are the world's and not the policy's.

``mask`` holds where a step is the policy's own: a token that it sampled, or a turn that took place.
What lies between (tool output, observations, padding) is no step: the recursions below carry what
comes after it over to what comes before, undiscounted and undecayed.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Steps = Float[Array, "row step"]
Tokens = Float[Array, "row token"]
Turns = Float[Array, "row turn"]
Number = Float[Array, ""] | float


def gae(
    reward: Steps,
    value: Steps,
    mask: Bool[Array, "row step"],
    last_value: Float[Array, "row"],
    *,
    gamma: Number = 1.0,
    lam: Number = 1.0,
) -> Steps:
    """Generalised advantage estimation (Schulman 2016, eq. 16) over the policy's own steps.

        A_t = r_t + gamma V_s - V_t + gamma lam A_s,    s the policy's next step after t

    After a row's last step V_s is ``last_value`` (0 where the answer ended, V where it was cut off)
    and A_s is 0. A reward that lies where no step is belongs to the step before it; before the
    first step it is lost. The advantage is 0 where ``mask`` does not hold. The target of V is
    A + V.
    """

    def back(
        ahead: tuple[Array, Array, Array], now: tuple[Array, Array, Array]
    ) -> tuple[tuple[Array, Array, Array], Array]:
        next_value, advantage, waiting = ahead
        reward, value, own = now
        earned = reward + waiting
        found = earned + gamma * next_value - value + gamma * lam * advantage
        carried = (
            jnp.where(own, value, next_value),
            jnp.where(own, found, advantage),
            jnp.where(own, 0.0, earned),
        )
        return carried, jnp.where(own, found, 0.0)

    start = (last_value, jnp.zeros_like(last_value), jnp.zeros_like(last_value))
    by_step = (reward.T, value.T, mask.T)
    return jax.lax.scan(back, start, by_step, reverse=True)[1].T


def returns_to_go(reward: Steps, mask: Bool[Array, "row step"], gamma: Number = 1.0) -> Steps:
    """r_t + gamma r_s + gamma^2 ...: what each own step and those after it earn; 0 elsewhere."""
    nothing = jnp.zeros_like(reward)
    return gae(reward, nothing, mask, nothing[:, 0], gamma=gamma)


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
    """GAE where a turn is one step: the discount is per turn, and every token of a turn gets the
    turn's advantage.

    ``reward``: what each turn earned. ``turn``: which turn a token belongs to, from 0 (read where
    ``mask`` holds). A turn's value is that of its first own token; a turn without own tokens is no
    step, and its reward goes to the turn before.
    """
    opening, there = first_of_turn(value, turn, mask, reward.shape[1])
    return to_tokens(gae(reward, opening, there, last_value, gamma=gamma, lam=lam), turn, mask)


def turn_returns(
    reward: Turns,
    turn: Int[Array, "row token"],
    mask: Bool[Array, "row token"],
    gamma: Number = 1.0,
) -> Tokens:
    """Every token gets its turn's return-to-go, discounted per turn; no critic."""
    there = first_of_turn(jnp.zeros_like(mask, reward.dtype), turn, mask, reward.shape[1])[1]
    return to_tokens(returns_to_go(reward, there, gamma), turn, mask)


def to_tokens(
    of_turn: Turns, turn: Int[Array, "row token"], mask: Bool[Array, "row token"]
) -> Tokens:
    """Each own token has its turn's number; 0 elsewhere."""
    at = jnp.clip(turn, 0, of_turn.shape[1] - 1)
    return jnp.where(mask, jnp.take_along_axis(of_turn, at, 1), 0.0)


def to_turns(
    of_token: Tokens, turn: Int[Array, "row token"], mask: Bool[Array, "row token"], turns: int
) -> Turns:
    """Each turn has the sum over its own tokens."""
    rows = jnp.broadcast_to(jnp.arange(turn.shape[0])[:, None], turn.shape)
    at = jnp.where(mask, turn, turns)  # past the end: dropped
    empty = jnp.zeros((turn.shape[0], turns), of_token.dtype)
    return empty.at[rows, at].add(jnp.where(mask, of_token, 0.0), mode="drop")


def first_of_turn(
    of_token: Tokens, turn: Int[Array, "row token"], mask: Bool[Array, "row token"], turns: int
) -> tuple[Turns, Bool[Array, "row turn"]]:
    """The number at each turn's first own token, and which turns have one (0 where none)."""
    tokens = turn.shape[1]
    rows = jnp.broadcast_to(jnp.arange(turn.shape[0])[:, None], turn.shape)
    place = jnp.broadcast_to(jnp.arange(tokens)[None], turn.shape)
    at = jnp.where(mask, turn, turns)
    none = jnp.full((turn.shape[0], turns), tokens)
    first = none.at[rows, at].min(place, mode="drop")
    there = first < tokens
    found = jnp.take_along_axis(of_token, jnp.minimum(first, tokens - 1), 1)
    return jnp.where(there, found, 0.0), there
