"""Distributions over actions, as trees: they can cross jit, vmap and scan."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from sterling import keys as named


class Categorical(eqx.Module):
    """One choice among ``n``; impossible choices have logit ``-inf`` (a finite stand-in)."""

    logits: Float[Array, "... n"]

    def sample(self, key: Key[Array, ""]) -> Int[Array, "..."]:
        """Draw."""
        return jax.random.categorical(key, self.logits).astype(jnp.int32)

    def mode(self) -> Int[Array, "..."]:
        """The likeliest choice."""
        return jnp.argmax(self.logits, -1).astype(jnp.int32)

    def log_prob(self, action: Int[Array, "..."]) -> Float[Array, "..."]:
        """log p(action)."""
        log_p = jax.nn.log_softmax(self.logits)
        return jnp.take_along_axis(log_p, action[..., None], -1)[..., 0]

    def entropy(self) -> Float[Array, "..."]:
        """-sum p log p."""
        log_p = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_p) * log_p, -1)


class MultiCategorical(eqx.Module):
    """Several independent choices at once."""

    parts: tuple[Categorical, ...]

    def sample(self, key: Key[Array, ""]) -> Int[Array, "... choices"]:
        """Draw."""
        keys = named.deal(key, "part", len(self.parts))
        return jnp.stack([p.sample(k) for p, k in zip(self.parts, keys, strict=True)], -1)

    def mode(self) -> Int[Array, "... choices"]:
        """The likeliest choice of each."""
        return jnp.stack([part.mode() for part in self.parts], -1)

    def log_prob(self, action: Int[Array, "... choices"]) -> Float[Array, "..."]:
        """Sum of the choices' log-probabilities."""
        return sum(part.log_prob(action[..., i]) for i, part in enumerate(self.parts))  # type: ignore[return-value]

    def entropy(self) -> Float[Array, "..."]:
        """Sum of the choices' entropies."""
        return sum(part.entropy() for part in self.parts)  # type: ignore[return-value]


class Normal(eqx.Module):
    """Independent normals on the last axis."""

    mean: Float[Array, "... n"]
    log_std: Float[Array, "... n"]

    def sample(self, key: Key[Array, ""]) -> Float[Array, "... n"]:
        """Draw."""
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> Float[Array, "... n"]:
        """The mean."""
        return self.mean

    def log_prob(self, action: Float[Array, "... n"]) -> Float[Array, "..."]:
        """log p(action)."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z * z - self.log_std - 0.5 * math.log(2 * math.pi), -1)

    def entropy(self) -> Float[Array, "..."]:
        """Differential entropy."""
        return jnp.sum(self.log_std + 0.5 * math.log(2 * math.pi * math.e), -1)


class TanhNormal(eqx.Module):
    """A normal squashed to (-1, 1) (Haarnoja 2018, appendix C)."""

    normal: Normal

    def sample_and_log_prob(
        self, key: Key[Array, ""]
    ) -> tuple[Float[Array, "... n"], Float[Array, "..."]]:
        """Draw, with the log-density of what was drawn.

        log(1 - tanh(u)^2) is computed as 2 (log 2 - u - softplus(-2u)), which never underflows.
        """
        raw = self.normal.sample(key)
        return jnp.tanh(raw), self._log_prob(raw)

    def log_prob(self, action: Float[Array, "... n"]) -> Float[Array, "..."]:
        """log p(action); what lies on the edge counts as 1e-6 inside of it."""
        return self._log_prob(jnp.arctanh(jnp.clip(action, -1.0 + 1e-6, 1.0 - 1e-6)))

    def _log_prob(self, raw: Float[Array, "... n"]) -> Float[Array, "..."]:
        correction = 2.0 * (math.log(2.0) - raw - jax.nn.softplus(-2.0 * raw))
        return self.normal.log_prob(raw) - jnp.sum(correction, -1)

    def mode(self) -> Float[Array, "... n"]:
        """tanh of the mean (the usual deterministic action)."""
        return jnp.tanh(self.normal.mean)
