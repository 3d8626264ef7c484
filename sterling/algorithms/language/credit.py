"""What each token of an answer is worth: from rewards to advantages."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sterling.algorithms.language import teaching
from sterling.equations import divergence, likelihood
from sterling.equations import group as groups
from sterling.equations.average import masked_mean
from sterling.equations.turns import (
    first_of_turn,
    gae,
    returns_to_go,
    to_tokens,
    to_turns,
    turn_gae,
    turn_returns,
)
from sterling.types import Record

Tokens = Float[Array, "row token"]


def advantages(
    state: Any,
    batch: Record,
    ids: Int[Array, "row time"],
    mask: Bool[Array, "row token"],
    before: dict[str, Float[Array, "row token"]],
) -> tuple[Float[Array, "row token"], dict[str, Tokens], dict[str, Array]]:
    """A of every token; the critic's values and targets, if there is one; and what to report."""
    config, extras = state.config, batch.extras
    price = divergence_price(config, before, mask)
    lost = jnp.zeros_like(extras["score"])
    if last := overlong(config):
        lost = groups.overlong_penalty(longest_turn(mask), config.limit, last)
    score = extras["score"] + lost - jnp.sum(price, 1)
    reward = batch.reward - price + jnp.where(batch.last, lost[:, None], 0.0)
    how, valid = (config.baseline, config.scale), extras["valid"]
    found = {"data/score": masked_mean(extras["score"], valid), "data/flat": flat(batch)}
    if state.critic is not None:
        judge = state.critic.judge
        value = teaching.in_pieces(lambda lines, _: judge(lines), (ids, mask), config.piece)
        worth, target = by_critic(config, batch, reward, value, mask)
        return groups.whiten(worth, mask), {"value": value, "target": target}, found
    if config.scale == "tokens":
        centred = of_answers(extras["score"] + lost, batch, mask, (config.baseline, "none"))
        at_end = jnp.where(batch.last & mask, centred, 0.0) - price
        return of_tokens(at_end, mask, config.gamma), {}, found
    if config.turns:
        return of_turns(config, batch, reward, mask), {}, found
    return of_answers(score, batch, mask, how), {}, found


def likelihoods(
    state: Any, ids: Int[Array, "row time"], mask: Bool[Array, "row token"]
) -> dict[str, Float[Array, "row token"]]:
    """Log-probabilities under the policy as it is now, and under the reference; 0 where the
    settings do not ask for them."""
    config, nothing = state.config, jnp.zeros((ids.shape[0], ids.shape[1] - 1))
    found = {"model": nothing, "reference": nothing}
    how = ((ids, mask), config.temperature, config.piece)
    if asks_anew(config) or (config.kl != "none" and config.kl_in == "reward"):
        found["model"] = teaching.log_prob(state.model, *how)
    if state.reference is not None:
        found["reference"] = teaching.log_prob(state.reference, *how)
    return found


def asks_anew(config: Any) -> bool:
    """Whether ratios are to the model's own probabilities as the iteration begins, and not to those
    that were sampled by: these are others where the sampler leaves out unlikely tokens."""
    return config.decoupled or config.top_k > 0 or config.top_p is not None


def uncounted_age(config: Any) -> str:
    """Return the settings that bring old answers whose age nothing counts, or "".

    Ratios to the iteration's first policy begin at 1 whoever sampled the answer; only the weights
    of ``decoupled`` know an older one. Rule "reinforce" has no ratios.
    """
    if config.decoupled or not asks_anew(config) or config.rule == "reinforce":
        return ""
    return " and ".join(f"{each}={n}" for each in ("lag", "again") if (n := getattr(config, each)))


def overlong(config: Any) -> int:
    """Return the number of tokens before the limit over which the score falls by 1: as set, or a
    fifth of the limit, rounded down (Yu 2025, arXiv:2503.14476: 4096 of 20480)."""
    return int(config.limit // 5 if config.overlong is None else config.overlong)


def divergence_price(
    config: Any, before: dict[str, Float[Array, "row token"]], mask: Bool[Array, "row token"]
) -> Float[Array, "row token"]:
    """beta times the divergence of each token, where it is paid out of the reward."""
    if config.kl == "none" or config.kl_in == "loss":
        return jnp.zeros_like(before["model"])
    away = divergence.estimate(before["model"], before["reference"], config.kl)
    return jnp.where(mask, config.kl_coef * away, 0.0)


def kept(config: Any, batch: Record, mask: Bool[Array, "row token"]) -> Bool[Array, "row token"]:
    """The tokens that teach. What is left out stays in the denominators."""
    if not config.truncated:
        mask = mask & ~batch.extras["cut"][:, None]
    if config.solved:
        mask = mask & (batch.extras["score"] >= 1.0)[:, None]
    return mask


def staleness(
    config: Any,
    before: dict[str, Float[Array, "row token"]],
    batch: Record,
    mask: Bool[Array, "row token"],
) -> Float[Array, "row token"]:
    """What each token counts for having been said by an older policy."""
    if not config.decoupled:
        return jnp.ones_like(before["model"])
    spoke = batch.extras["log_prob"]
    return likelihood.behaviour_weight(before["model"], spoke, mask, config.cap)


def longest_turn(mask: Bool[Array, "row token"]) -> Int[Array, "row"]:
    """Tokens of each row's longest answer: what others say stands between two of them."""
    count = jnp.cumsum(mask.astype(jnp.int32), 1)
    before = jax.lax.cummax(jnp.where(mask, 0, count), axis=1)  # those of the turns that are over
    return jnp.max(count - before, 1)


def flat(batch: Record) -> Float[Array, ""]:
    """The share of rows whose whole group has the same score: they teach nothing."""
    valid, group = batch.extras["valid"], batch.extras["group"]
    same = (group[:, None] == group[None]) & valid[None]
    score = batch.extras["score"]
    top = jnp.max(jnp.where(same, score[None], -jnp.inf), 1)
    low = jnp.min(jnp.where(same, score[None], jnp.inf), 1)
    return masked_mean((top - low < 1e-6).astype(jnp.float32), valid)


def row_mean(x: Float[Array, "row token"], mask: Bool[Array, "row token"]) -> Float[Array, "row"]:
    """Each row's mean where ``mask`` holds."""
    count = jnp.maximum(jnp.sum(mask, 1), 1).astype(jnp.float32)
    return jnp.sum(jnp.where(mask, x, 0.0), 1) / count


def of_answers(
    score: Float[Array, "row"], batch: Record, mask: Bool[Array, "row token"], how: tuple[str, str]
) -> Tokens:
    """All tokens of an answer share its advantage within its group; ``how`` names baseline and
    scale (see :mod:`sterling.equations.group`)."""
    extras = batch.extras
    worth = groups.advantages(score, extras["group"], extras["valid"], *how)
    return jnp.where(mask, worth[:, None], 0.0)


def of_turns(config: Any, batch: Record, reward: Tokens, mask: Bool[Array, "row token"]) -> Tokens:
    """All tokens of a turn share the advantage of what it and the turns after it earned, among the
    same turn of the group's other rows; ``gamma`` discounts per turn."""
    turn, group, turns = batch.extras["turn"], batch.extras["group"], config.turns
    earned = turn_returns(to_turns(reward, turn, mask, turns), turn, mask, config.gamma)
    of_turn, there = first_of_turn(earned, turn, mask, turns)
    key = group[:, None] * turns + jnp.arange(turns, dtype=jnp.int32)[None]
    how = (config.baseline, config.scale)
    worth = groups.advantages(of_turn.ravel(), key.ravel(), there.ravel(), *how)
    return to_tokens(worth.reshape(of_turn.shape), turn, mask)


def of_tokens(
    reward: Tokens, mask: Bool[Array, "row token"], gamma: Float[Array, ""] | float
) -> Tokens:
    """REINFORCE++ (Hu 2025, eq. 3): what came after each token, whitened over all of them."""
    return groups.whiten(returns_to_go(reward, mask, gamma), mask)


def by_critic(
    config: Any, batch: Record, reward: Tokens, value: Tokens, mask: Bool[Array, "row token"]
) -> tuple[Tokens, Tokens]:
    """GAE over the policy's own tokens, or with ``turns`` over its turns, and the critic's targets.

    A turn's value is that before its first own token, so that is what each of its tokens is taught:
    A + V of its own would feed the critic's error at that token back to it. A row whose scene is
    not over goes on with the value of what comes after its last token."""
    goes_on = jnp.any(batch.last & (batch.discount > 0.0), 1)
    last = jnp.where(goes_on, _after(value, mask), 0.0)
    how = {"gamma": config.gamma, "lam": config.lam}
    if not config.turns:
        found = gae(reward, value, mask, last, **how)
        return found, found + value
    turn = batch.extras["turn"]
    of_turn = to_turns(reward, turn, mask, config.turns)
    found = turn_gae(of_turn, value, turn, mask, last, **how)
    opening, _ = first_of_turn(value, turn, mask, config.turns)
    return found, found + to_tokens(opening, turn, mask)


def _after(value: Tokens, mask: Bool[Array, "row token"]) -> Float[Array, "row"]:
    """The value once a row's last own token has been said; before it, where the row is full."""
    places: Int[Array, "token"] = jnp.arange(mask.shape[1], dtype=jnp.int32)
    at = jnp.max(jnp.where(mask, places[None] + 1, 0), 1)
    return jnp.take_along_axis(value, jnp.minimum(at, places.size - 1)[:, None], 1)[:, 0]
