"""Credit assignment for policy_gradient.py: from rewards of answers to advantages of tokens."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sterling.algorithms.language import gradient_accumulation
from sterling.equations import group_advantages as groups
from sterling.equations import kl_estimates, likelihood_ratios, line_rows
from sterling.equations.masked_average import masked_mean
from sterling.equations.term_advantages import term_advantages
from sterling.equations.turn_credit import (
    first_token_of_turn,
    masked_gae,
    returns_to_go,
    spread_to_tokens,
    sum_by_turn,
    turn_gae,
    turn_returns,
)
from sterling.types import Record

Tokens = Float[Array, "row token"]


def token_advantages(
    state: Any,
    batch: Record,
    ids: Int[Array, "row time"],
    mask: Bool[Array, "row token"],
    before: dict[str, Float[Array, "row token"]],
) -> tuple[Float[Array, "row token"], dict[str, Tokens], dict[str, Array]]:
    """Return every token's advantage, the critic's values and targets (if there is one), and
    metrics."""
    config, extras = state.config, batch.extras
    cost, earlier = kl_cost(config, before, mask), rows_before(batch)
    penalty = jnp.zeros_like(extras["score"])
    if last := overlong_tokens(config):
        penalty = groups.overlong_penalty(longest_turn(mask), config.limit, last)
        penalty = line_rows.line_min(penalty, earlier)
    score = extras["score"] + penalty
    at_end = jnp.where(line_rows.is_last(earlier), penalty, 0.0)
    reward = batch.reward - cost + jnp.where(batch.last, at_end[:, None], 0.0)
    metrics = {
        "data/score": masked_mean(extras["score"], first_rows_that_count(batch)),
        "data/flat": uniform_group_share(batch),
    }
    if "version" in extras:
        age = (state.updates - extras["version"]).astype(jnp.float32)
        metrics["data/staleness"] = masked_mean(age, mask & (extras["version"] >= 0))
    if state.critic is not None:
        model, piece = state.critic.judge, config.piece
        value = gradient_accumulation.map_pieces(lambda lines, _: model(lines), (ids, mask), piece)
        advantage, target = critic_advantages(config, batch, reward, value, mask)
        return groups.whiten(advantage, mask), {"value": value, "target": target}, metrics
    if config.scale == "tokens":
        centred = answer_advantages(score, batch, mask, (config.baseline, "none"))
        at_end = jnp.where(batch.last & mask, centred, 0.0) - cost
        return whitened_returns(at_end, mask, config.gamma), {}, metrics
    if config.turns:
        return turn_advantages(config, batch, reward, mask), {}, metrics
    how = (config.baseline, config.scale)
    if "part" in extras:
        return part_advantages(batch, penalty, mask, how), {}, metrics
    spent = line_rows.line_sum(jnp.sum(cost, 1), earlier)
    return answer_advantages(score - spent, batch, mask, how), {}, metrics


def rows_before(batch: Record) -> Int[Array, "row"]:
    """Return how many rows of its line come before each row; 0 in batches that do not say."""
    return batch.extras.get("rows_before", jnp.zeros(batch.mask.shape[0], jnp.int32))


def first_rows_that_count(batch: Record) -> Bool[Array, "row"]:
    """Return the first row of every valid line: averages over answers count each line once."""
    return batch.extras["valid"] & (rows_before(batch) == 0)


def log_probs_before_update(
    state: Any, ids: Int[Array, "row time"], mask: Bool[Array, "row token"]
) -> dict[str, Float[Array, "row token"]]:
    """Return log-probabilities under the current policy ("model") and the reference; 0 where the
    settings do not need them."""
    config, zeros = state.config, jnp.zeros((ids.shape[0], ids.shape[1] - 1))
    log_probs = {"model": zeros, "reference": zeros}
    inputs = ((ids, mask), config.temperature, config.piece)
    if recomputes_log_probs(config) or (config.kl != "none" and config.kl_in == "reward"):
        log_probs["model"] = gradient_accumulation.token_log_probs(state.model, *inputs)
    if state.reference is not None:
        log_probs["reference"] = gradient_accumulation.token_log_probs(state.reference, *inputs)
    return log_probs


def recomputes_log_probs(config: Any) -> bool:
    """Whether ratios are to the model's own probabilities at the start of the iteration, not to the
    sampler's, which differ if it leaves out unlikely tokens (``top_k``, ``top_p``)."""
    return config.decoupled or config.top_k > 0 or config.top_p is not None


def uncorrected_staleness(config: Any) -> str:
    """Return the settings that bring stale answers without any correction for it, or "".

    Ratios to the policy at the iteration's start begin at 1, whichever policy sampled the answer;
    only the weights of ``decoupled`` correct for an older one. Rule "reinforce" has no ratios.
    """
    if config.decoupled or not recomputes_log_probs(config) or config.rule == "reinforce":
        return ""
    old = ("lag", "ahead", "again")
    return " and ".join(f"{each}={n}" for each in old if (n := getattr(config, each)))


def overlong_tokens(config: Any) -> int:
    """Return the number of last tokens over which the score falls by 1: as set, or a fifth of the
    limit, rounded down (Yu 2025, arXiv:2503.14476: 4096 of 20480)."""
    return int(config.limit // 5 if config.overlong is None else config.overlong)


def kl_cost(
    config: Any, before: dict[str, Float[Array, "row token"]], mask: Bool[Array, "row token"]
) -> Float[Array, "row token"]:
    """Return each token's KL cost beta KL_t; 0 unless ``kl_in`` is "reward"."""
    if config.kl == "none" or config.kl_in == "loss":
        return jnp.zeros_like(before["model"])
    kl = kl_estimates.estimate_kl(before["model"], before["reference"], config.kl)
    return jnp.where(mask, config.kl_coef * kl, 0.0)


def learned_tokens(
    config: Any, batch: Record, mask: Bool[Array, "row token"]
) -> Bool[Array, "row token"]:
    """Return the mask of tokens that have a loss; the others stay in the denominators."""
    if not config.truncated:
        mask = mask & ~batch.extras["cut"][:, None]
    if config.solved:
        mask = mask & is_right_row(batch)[:, None]
    return mask


def is_right_row(batch: Record) -> Bool[Array, "row"]:
    """Return which rows have a right answer; where the record does not say it, those with a score
    of at least 1."""
    extras = batch.extras
    return extras["right"] if "right" in extras else extras["score"] >= 1.0


def staleness_weight(
    config: Any,
    before: dict[str, Float[Array, "row token"]],
    batch: Record,
    mask: Bool[Array, "row token"],
) -> Float[Array, "row token"]:
    """Return each token's importance weight for having been sampled by an older policy."""
    if not config.decoupled:
        return jnp.ones_like(before["model"])
    sampled = batch.extras["log_prob"]
    return likelihood_ratios.behaviour_weight(before["model"], sampled, mask, config.cap)


def longest_turn(mask: Bool[Array, "row token"]) -> Int[Array, "row"]:
    """Return the length of each row's longest answer in tokens; other tokens separate answers."""
    count = jnp.cumsum(mask.astype(jnp.int32), 1)
    before = jax.lax.cummax(jnp.where(mask, 0, count), axis=1)  # own tokens of earlier turns
    return jnp.max(count - before, 1)


def uniform_group_share(batch: Record) -> Float[Array, ""]:
    """Return the share of answers in whose group all scores (or all values of each term, if these
    are normalised one by one) are equal, so that nothing is learned."""
    valid, group = first_rows_that_count(batch), batch.extras["group"]
    same = (group[:, None] == group[None]) & valid[None]

    def is_flat(score: Float[Array, "row"], applies: Bool[Array, "row"]) -> Bool[Array, "row"]:
        top = jnp.max(jnp.where(same & applies[None], score[None], -jnp.inf), 1)
        low = jnp.min(jnp.where(same & applies[None], score[None], jnp.inf), 1)
        return top - low < 1e-6

    if "part" in batch.extras:
        values, weights = batch.extras["part"][..., 0], batch.extras["part"][..., 1]
        terms = zip(values.T, weights.T, strict=True)
        flat = jnp.stack([is_flat(term, weight != 0.0) for term, weight in terms]).all(0)
    else:
        flat = is_flat(batch.extras["score"], valid)
    return masked_mean(flat.astype(jnp.float32), valid)


def row_mean(x: Float[Array, "row token"], mask: Bool[Array, "row token"]) -> Float[Array, "row"]:
    """Return each row's mean over tokens where ``mask`` holds."""
    count = jnp.maximum(jnp.sum(mask, 1), 1).astype(jnp.float32)
    return jnp.sum(jnp.where(mask, x, 0.0), 1) / count


def answer_advantages(
    score: Float[Array, "row"], batch: Record, mask: Bool[Array, "row token"], how: tuple[str, str]
) -> Tokens:
    """Give all tokens of an answer its advantage within its group; ``how`` is baseline and scale
    (see :mod:`sterling.equations.group_advantages`)."""
    extras, valid = batch.extras, first_rows_that_count(batch)
    advantage = groups.advantages(score, extras["group"], valid, *how)
    return spread_to_rows(advantage, batch, mask)


def spread_to_rows(
    advantage: Float[Array, "row"], batch: Record, mask: Bool[Array, "row token"]
) -> Tokens:
    """Give all tokens of an answer the advantage of its first row."""
    of_answer = advantage[line_rows.first_rows(rows_before(batch))]
    return jnp.where(mask, of_answer[:, None], 0.0)


def part_advantages(
    batch: Record,
    penalty: Float[Array, "row"],
    mask: Bool[Array, "row token"],
    how: tuple[str, str],
) -> Tokens:
    """Give all tokens of an answer the advantage of its reward's terms, each normalised by itself;
    the penalty for length is a further term of weight 1."""
    extras = batch.extras
    part = jnp.stack([penalty, jnp.ones_like(penalty)], -1)[:, None]
    part = jnp.concatenate([extras["part"], part], 1)
    terms, weights, valid = part[..., 0], part[..., 1], first_rows_that_count(batch)
    advantage = term_advantages(terms, weights, extras["group"], valid, how)
    return spread_to_rows(advantage, batch, mask)


def turn_advantages(
    config: Any, batch: Record, reward: Tokens, mask: Bool[Array, "row token"]
) -> Tokens:
    """Give all tokens of a turn the advantage of the return from that turn on, relative to the same
    turn in the group's other lines; ``gamma`` discounts per turn."""
    turn, group, turns = batch.extras["turn"], batch.extras["group"], config.turns
    of_turn = sum_by_turn(reward, turn, mask, turns)
    earlier = rows_before(batch)
    returns = turn_returns(of_turn, turn, mask, config.gamma, rows_before=earlier)
    of_turn, valid = first_token_of_turn(returns, turn, mask, turns)
    key = group[:, None] * turns + jnp.arange(turns, dtype=jnp.int32)[None]
    how = (config.baseline, config.scale)
    advantage = groups.advantages(of_turn.ravel(), key.ravel(), valid.ravel(), *how)
    return spread_to_tokens(advantage.reshape(of_turn.shape), turn, mask)


def whitened_returns(
    reward: Tokens, mask: Bool[Array, "row token"], gamma: Float[Array, ""] | float
) -> Tokens:
    """Return each token's return, whitened over all tokens (REINFORCE++; Hu 2025, eq. 3)."""
    return groups.whiten(returns_to_go(reward, mask, gamma), mask)


def critic_advantages(
    config: Any, batch: Record, reward: Tokens, value: Tokens, mask: Bool[Array, "row token"]
) -> tuple[Tokens, Tokens]:
    """Return GAE over the policy's own tokens (or turns, with ``turns``), and the critic's targets.

    A turn's value is that before its first own token, and that plus A is the target of all its
    tokens: A + V of each token itself would feed the critic's error there back to it. A row whose
    conversation has not ended bootstraps from the value after its last own token; one that another
    context of its line follows, from the value before that context's first."""
    truncated = jnp.any(batch.last & (batch.discount > 0.0), 1)
    last = jnp.where(truncated, _bootstrap_value(value, mask), 0.0)
    before_next = jnp.roll(_first_value(value, mask), -1)
    last = jnp.where(line_rows.is_last(rows_before(batch)), last, before_next)
    options = {"gamma": config.gamma, "lam": config.lam}
    if not config.turns:
        advantage = masked_gae(reward, value, mask, last, **options)
        return advantage, advantage + value
    turn = batch.extras["turn"]
    turn_reward = sum_by_turn(reward, turn, mask, config.turns)
    advantage = turn_gae(turn_reward, value, turn, mask, last, **options)
    first_value, _ = first_token_of_turn(value, turn, mask, config.turns)
    return advantage, advantage + spread_to_tokens(first_value, turn, mask)


def _first_value(value: Tokens, mask: Bool[Array, "row token"]) -> Float[Array, "row"]:
    """Return the value before each row's first own token."""
    return jnp.take_along_axis(value, jnp.argmax(mask, 1)[:, None], 1)[:, 0]


def _bootstrap_value(value: Tokens, mask: Bool[Array, "row token"]) -> Float[Array, "row"]:
    """Return the value after each row's last own token (before it, if the row is full)."""
    places: Int[Array, "token"] = jnp.arange(mask.shape[1], dtype=jnp.int32)
    at = jnp.max(jnp.where(mask, places[None] + 1, 0), 1)
    return jnp.take_along_axis(value, jnp.minimum(at, places.size - 1)[:, None], 1)[:, 0]
