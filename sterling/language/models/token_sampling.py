"""Draw tokens from logits: temperature, top-k and top-p, and the log-probability of each drawn
token.

The log-probability is that of the distribution the token was really drawn from, after every cut:
what importance ratios need.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sterling.system.mistake import Mistake


class Sampling(eqx.Module):
    """The sampling settings of each row."""

    temperature: Float[Array, "row"]  # divides the logits; 0: always the likeliest token
    top_k: Int[Array, "row"]  # keep only so many of the likeliest tokens; 0: all
    top_p: Float[Array, "row"]  # keep the likeliest that make up so much probability; 1: all
    has_cuts: bool = eqx.field(static=True)  # whether any row uses top-k or top-p: these sort

    @classmethod
    def for_rows(
        cls, rows: int, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0
    ) -> Sampling:
        """Return the same settings for all rows. Raises :class:`Mistake` for values out of
        range."""
        check_sampling(temperature, top_k, top_p)
        return cls(
            jnp.full(rows, temperature, jnp.float32),
            jnp.full(rows, top_k, jnp.int32),
            jnp.full(rows, top_p, jnp.float32),
            top_k > 0 or top_p < 1.0,
        )


def check_sampling(temperature: float, top_k: int, top_p: float) -> None:
    """Raise :class:`Mistake` for values out of range."""
    if not (temperature >= 0.0 and top_k >= 0 and 0.0 < top_p <= 1.0):
        raise Mistake(
            "sampling needs temperature >= 0, top_k >= 0 and 0 < top_p <= 1; "
            f"got {temperature=}, {top_k=}, {top_p=}"
        )


def log_probs(
    scores: Float[Array, "row vocabulary"], sampling: Sampling
) -> Float[Array, "row vocabulary"]:
    """Return the log-probabilities of the distribution that is sampled; -inf for tokens that cannot
    be drawn."""
    best = jax.nn.one_hot(jnp.argmax(scores, -1), scores.shape[-1], dtype=bool)
    greedy = jnp.where(best, 0.0, -jnp.inf)
    warm = sampling.temperature[:, None] > 0.0
    return jnp.where(warm, jax.nn.log_softmax(_tempered_and_cut(scores, sampling)), greedy)


def draw_tokens(
    scores: Float[Array, "row vocabulary"], chance: Float[Array, "row"], sampling: Sampling
) -> tuple[Int[Array, "row"], Float[Array, "row"]]:
    """Draw a token for each row; return it and its log-probability (see :func:`log_probs`).

    ``chance`` is uniform in [0, 1): the first token whose cumulative probability is above it is
    drawn. This takes one random number a row, where Gumbel noise would take one for each token.
    """
    scaled, highest = _tempered_and_cut(scores, sampling), jnp.max(scores, -1, keepdims=True)
    top = _tempered(highest, sampling)
    drawn, total = _inverse_cdf(jnp.exp(scaled - top), chance)
    likely = jnp.take_along_axis(scaled, drawn[:, None], 1)[:, 0] - top[:, 0] - jnp.log(total)
    number = jnp.arange(scores.shape[-1], dtype=jnp.int32)[None]
    best = jnp.min(jnp.where(scores == highest, number, scores.shape[-1] - 1), -1)
    warm = sampling.temperature > 0.0
    return jnp.where(warm, drawn, best), jnp.where(warm, likely, 0.0)


def _inverse_cdf(
    weight: Float[Array, "row vocabulary"], chance: Float[Array, "row"]
) -> tuple[Int[Array, "row"], Float[Array, "row"]]:
    """Return the first token whose cumulative weight is above the share ``chance`` of the total,
    and the total.

    Two short sums, over pieces and then inside of one, replace a long one. A token without weight
    is never returned, however the sums are rounded.
    """
    size = 1 << (weight.shape[-1].bit_length() + 1) // 2  # a power of 2 near the square root
    spare = -weight.shape[-1] % size
    pieces = jnp.pad(weight, ((0, 0), (0, spare))).reshape(weight.shape[0], -1, size)
    ends = jnp.cumsum(jnp.sum(pieces, -1), -1)
    total = ends[:, -1]
    goal = (chance * total)[:, None]
    piece = jnp.sum(ends <= goal, -1).astype(jnp.int32)
    before = jnp.max(jnp.where(ends <= goal, ends, 0.0), -1, keepdims=True)
    inside = jnp.take_along_axis(pieces, piece[:, None, None], 1)[:, 0]
    place = jnp.sum(jnp.cumsum(inside, -1) <= goal - before, -1).astype(jnp.int32)
    number = jnp.arange(size, dtype=jnp.int32)[None]
    last = jnp.max(jnp.where(inside > 0.0, number, 0), -1)
    return piece * size + jnp.minimum(place, last), total


def _tempered_and_cut(
    scores: Float[Array, "row vocabulary"], sampling: Sampling
) -> Float[Array, "row vocabulary"]:
    """Return logits divided by the temperature; -inf where cut."""
    scaled = _tempered(scores, sampling)
    if not sampling.has_cuts:
        return scaled
    return jnp.where(scaled >= _lowest_kept_score(scaled, sampling)[:, None], scaled, -jnp.inf)


def _tempered(scores: Float[Array, "row some"], sampling: Sampling) -> Float[Array, "row some"]:
    return scores / jnp.maximum(sampling.temperature, 1e-6)[:, None]


def _lowest_kept_score(
    scaled: Float[Array, "row vocabulary"], sampling: Sampling
) -> Float[Array, "row"]:
    """Return the smallest logit that is kept: of the k largest, those before which less than p of
    the probability lies.

    Top-p counts probability among the k tokens that top-k kept, as ``transformers`` does.
    """
    ordered = -jnp.sort(-scaled, -1)
    size = scaled.shape[-1]
    kept = jnp.where(sampling.top_k > 0, jnp.minimum(sampling.top_k, size), size)
    among = jnp.arange(size, dtype=jnp.int32)[None] < kept[:, None]
    share = jax.nn.softmax(jnp.where(among, ordered, -jnp.inf))
    before = jnp.cumsum(share, -1) - share
    count = jnp.sum(among & (before < sampling.top_p[:, None]), -1)
    return jnp.take_along_axis(ordered, jnp.maximum(count - 1, 0)[:, None], 1)[:, 0]
