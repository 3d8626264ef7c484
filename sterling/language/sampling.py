"""From scores to a token: temperature, top-k and top-p, and the log-probability of what was drawn.

The log-probability is that of the distribution the token was really drawn from, after every cut:
what importance ratios need.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from sterling.types import Mistake


class Sampling(eqx.Module):
    """How each row is sampled."""

    temperature: Float[Array, "row"]  # scores are divided by it; 0: always the likeliest token
    top_k: Int[Array, "row"]  # only so many of the likeliest tokens; 0: all
    top_p: Float[Array, "row"]  # only the likeliest that make up so much probability; 1: all
    cuts: bool = eqx.field(static=True)  # whether any row is cut at all: sorting costs time

    @classmethod
    def of(
        cls, rows: int, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0
    ) -> Sampling:
        """The same for all rows. Raises :class:`Mistake` for what cannot be sampled."""
        if temperature < 0.0 or top_k < 0 or not 0.0 < top_p <= 1.0:
            raise Mistake(
                "sampling needs temperature >= 0, top_k >= 0 and 0 < top_p <= 1; "
                f"got {temperature=}, {top_k=}, {top_p=}"
            )
        return cls(
            jnp.full(rows, temperature, jnp.float32),
            jnp.full(rows, top_k, jnp.int32),
            jnp.full(rows, top_p, jnp.float32),
            top_k > 0 or top_p < 1.0,
        )

    def rows(self, index: Int[Array, "some"]) -> Sampling:
        """The settings of some rows."""
        return Sampling(self.temperature[index], self.top_k[index], self.top_p[index], self.cuts)


def log_probs(
    scores: Float[Array, "row vocabulary"], sampling: Sampling
) -> Float[Array, "row vocabulary"]:
    """The log-distribution that is sampled; -inf for tokens that cannot be drawn."""
    scaled = scores / jnp.maximum(sampling.temperature, 1e-6)[:, None]
    if sampling.cuts:
        scaled = jnp.where(scaled >= _threshold(scaled, sampling)[:, None], scaled, -jnp.inf)
    best = jax.nn.one_hot(jnp.argmax(scores, -1), scores.shape[-1], dtype=bool)
    greedy = jnp.where(best, 0.0, -jnp.inf)
    return jnp.where(sampling.temperature[:, None] > 0.0, jax.nn.log_softmax(scaled), greedy)


def draw(
    scores: Float[Array, "row vocabulary"], keys: Key[Array, "row"], sampling: Sampling
) -> tuple[Int[Array, "row"], Float[Array, "row"]]:
    """A token for each row and its log-probability.

    The first token up to which more than a uniform number's share of the probability lies: one
    random number a row, where Gumbel noise would take one for each token of the vocabulary.
    """
    log_p = log_probs(scores, sampling)
    below = jnp.cumsum(jnp.exp(log_p), -1)
    uniform = jax.vmap(jax.random.uniform)(keys)[:, None]
    token = jnp.sum(below <= uniform * below[:, -1:], -1).astype(jnp.int32)
    return token, jnp.take_along_axis(log_p, token[:, None], 1)[:, 0]


def _threshold(scaled: Float[Array, "row vocabulary"], sampling: Sampling) -> Float[Array, "row"]:
    """The smallest score that is kept: of the k largest, those before which less than p lies.

    Top-p counts probability among the k that top-k left, as ``transformers`` does.
    """
    ordered = -jnp.sort(-scaled, -1)
    size = scaled.shape[-1]
    kept = jnp.where(sampling.top_k > 0, jnp.minimum(sampling.top_k, size), size)
    among = jnp.arange(size, dtype=jnp.int32)[None] < kept[:, None]
    share = jax.nn.softmax(jnp.where(among, ordered, -jnp.inf))
    before = jnp.cumsum(share, -1) - share
    count = jnp.sum(among & (before < sampling.top_p[:, None]), -1)
    return jnp.take_along_axis(ordered, jnp.maximum(count - 1, 0)[:, None], 1)[:, 0]
