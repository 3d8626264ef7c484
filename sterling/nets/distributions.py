"""Distributions over actions, as trees of arrays, so that they can pass through jit and vmap."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys as named


class Categorical(eqx.Module):
    """One choice among ``n``; forbidden choices have a very low, finite logit."""

    logits: Float[Array, "... n"]

    def sample(self, key: Key[Array, ""]) -> Int[Array, "..."]:
        """Draw a sample."""
        return jax.random.categorical(key, self.logits).astype(jnp.int32)

    def mode(self) -> Int[Array, "..."]:
        """Return the most likely choice."""
        return jnp.argmax(self.logits, -1).astype(jnp.int32)

    @property
    def parts(self) -> tuple[Categorical, ...]:
        """The choices of the distribution: itself, as of a :class:`MultiCategorical` with one."""
        return (self,)

    def log_prob(self, action: Int[Array, "..."]) -> Float[Array, "..."]:
        """Return log p(action)."""
        log_p = jax.nn.log_softmax(self.logits)
        return jnp.take_along_axis(log_p, action[..., None], -1)[..., 0]

    def entropy(self) -> Float[Array, "..."]:
        """Return the entropy -sum p log p, in nats."""
        log_p = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_p) * log_p, -1)

    def kl(self, other: Categorical) -> Float[Array, "..."]:
        """Return KL(self || other), in nats."""
        log_p, log_q = jax.nn.log_softmax(self.logits), jax.nn.log_softmax(other.logits)
        return jnp.sum(jnp.exp(log_p) * (log_p - log_q), -1)

    def kl_parts(self, other: Categorical) -> dict[str, Float[Array, "..."]]:
        """Return the parts of KL(self || other) that have limits of their own: one."""
        return {"choices": self.kl(other)}


class MultiCategorical(eqx.Module):
    """Several independent categorical choices."""

    parts: tuple[Categorical, ...]

    def sample(self, key: Key[Array, ""]) -> Int[Array, "... choices"]:
        """Draw a sample."""
        keys = named.split(key, "part", len(self.parts))
        return jnp.stack([p.sample(k) for p, k in zip(self.parts, keys, strict=True)], -1)

    def mode(self) -> Int[Array, "... choices"]:
        """Return the most likely choice of each."""
        return jnp.stack([part.mode() for part in self.parts], -1)

    def log_prob(self, action: Int[Array, "... choices"]) -> Float[Array, "..."]:
        """Return the sum of the choices' log-probabilities."""
        return sum(part.log_prob(action[..., i]) for i, part in enumerate(self.parts))  # type: ignore[return-value]

    def entropy(self) -> Float[Array, "..."]:
        """Return the sum of the choices' entropies, in nats."""
        return sum(part.entropy() for part in self.parts)  # type: ignore[return-value]

    def kl(self, other: MultiCategorical) -> Float[Array, "..."]:
        """Return KL(self || other), the sum of the choices', in nats."""
        return sum(p.kl(q) for p, q in zip(self.parts, other.parts, strict=True))  # type: ignore[return-value]

    def kl_parts(self, other: MultiCategorical) -> dict[str, Float[Array, "..."]]:
        """Return the parts of KL(self || other) that have limits of their own: one."""
        return {"choices": self.kl(other)}


class Normal(eqx.Module):
    """Independent normal distributions along the last axis."""

    mean: Float[Array, "... n"]
    log_std: Float[Array, "... n"]

    def sample(self, key: Key[Array, ""]) -> Float[Array, "... n"]:
        """Draw a sample."""
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> Float[Array, "... n"]:
        """Return the mean."""
        return self.mean

    def log_prob(self, action: Float[Array, "... n"]) -> Float[Array, "..."]:
        """Return log p(action)."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z * z - self.log_std - 0.5 * math.log(2 * math.pi), -1)

    def entropy(self) -> Float[Array, "..."]:
        """Return the differential entropy, in nats."""
        return jnp.sum(self.log_std + 0.5 * math.log(2 * math.pi * math.e), -1)

    def kl(self, other: Normal) -> Float[Array, "..."]:
        """Return KL(self || other), in nats."""
        moved = jnp.square(self.mean - other.mean) * jnp.exp(-2.0 * other.log_std)
        wider = self.log_std - other.log_std
        return jnp.sum(0.5 * (jnp.exp(2.0 * wider) + moved - 1.0) - wider, -1)

    def kl_parts(self, other: Normal) -> dict[str, Float[Array, "..."]]:
        """Return KL(self || .) of a normal with only the mean of ``other``, and of one with only
        its deviation (Abdolmaleki 2018b, arXiv:1812.02256, section 3.4)."""
        only_mean, only_deviation = (
            Normal(other.mean, self.log_std),
            Normal(self.mean, other.log_std),
        )
        return {"mean": self.kl(only_mean), "deviation": self.kl(only_deviation)}


class ChoicesAndNumbers(eqx.Module):
    """Independent choices and normal numbers in one row: the choices as floats, then the numbers
    (the actions of :class:`~sterling.problem.hybrid_action.HybridAction`)."""

    choices: MultiCategorical
    numbers: Normal

    def sample(self, key: Key[Array, ""]) -> Float[Array, "... row"]:
        """Draw a sample."""
        choices = self.choices.sample(named.fold(key, "choices"))
        return self._row(choices, self.numbers.sample(named.fold(key, "numbers")))

    def mode(self) -> Float[Array, "... row"]:
        """Return the most likely choices and the means."""
        return self._row(self.choices.mode(), self.numbers.mode())

    def log_prob(self, action: Float[Array, "... row"]) -> Float[Array, "..."]:
        """Return log p: the log-probability of the choices plus the log-density of the numbers."""
        first = len(self.choices.parts)
        choices = jnp.rint(action[..., :first]).astype(jnp.int32)
        return self.choices.log_prob(choices) + self.numbers.log_prob(action[..., first:])

    def entropy(self) -> Float[Array, "..."]:
        """Return the sum of the choices' entropies and the numbers' differential entropy."""
        return self.choices.entropy() + self.numbers.entropy()

    def kl(self, other: ChoicesAndNumbers) -> Float[Array, "..."]:
        """Return KL(self || other), the sum of both parts', in nats."""
        return self.choices.kl(other.choices) + self.numbers.kl(other.numbers)

    def kl_parts(self, other: ChoicesAndNumbers) -> dict[str, Float[Array, "..."]]:
        """Return the parts of KL(self || other) that have limits of their own."""
        return self.choices.kl_parts(other.choices) | self.numbers.kl_parts(other.numbers)

    def _row(
        self, choices: Int[Array, "... choices"], numbers: Float[Array, "... n"]
    ) -> Float[Array, "... row"]:
        return jnp.concatenate([choices.astype(numbers.dtype), numbers], -1)


ActionDistribution = Categorical | MultiCategorical | Normal | ChoicesAndNumbers


class TanhNormal(eqx.Module):
    """A normal distribution squashed to (-1, 1) by tanh (Haarnoja 2018, appendix C)."""

    normal: Normal

    def sample_and_log_prob(
        self, key: Key[Array, ""]
    ) -> tuple[Float[Array, "... n"], Float[Array, "..."]]:
        """Draw a sample and return it with its log-density.

        log(1 - tanh(u)^2) is computed as 2 (log 2 - u - softplus(-2u)), which never underflows.
        """
        raw = self.normal.sample(key)
        return jnp.tanh(raw), self._log_prob(raw)

    def log_prob(self, action: Float[Array, "... n"]) -> Float[Array, "..."]:
        """Return log p(action); actions are clipped to 1e-6 inside the edges first."""
        return self._log_prob(jnp.arctanh(jnp.clip(action, -1.0 + 1e-6, 1.0 - 1e-6)))

    def _log_prob(self, raw: Float[Array, "... n"]) -> Float[Array, "..."]:
        correction = 2.0 * (math.log(2.0) - raw - jax.nn.softplus(-2.0 * raw))
        return self.normal.log_prob(raw) - jnp.sum(correction, -1)

    def mode(self) -> Float[Array, "... n"]:
        """Return tanh of the mean, the usual deterministic action (not the density's mode)."""
        return jnp.tanh(self.normal.mean)


class OneHotGroups(eqx.Module):
    """Independent choices, one for each group, that networks read as one-hot numbers (Hafner 2021,
    DreamerV2, arXiv:2010.02193; with uniform probabilities mixed in, arXiv:2301.04104)."""

    log_p: Float[Array, "... group class"]

    @classmethod
    def mixed(
        cls, logits: Float[Array, "... numbers"], groups: int, uniform: float = 0.01
    ) -> OneHotGroups:
        """Return ``groups`` choices, given their logits side by side; the share ``uniform`` of each
        group's probabilities is uniform, so none is 0 and divergences stay finite."""
        p = jax.nn.softmax(logits.reshape(*logits.shape[:-1], groups, -1))
        return cls(jnp.log((1.0 - uniform) * p + uniform / p.shape[-1]))

    def sample(self, key: Key[Array, ""]) -> Float[Array, "... numbers"]:
        """Draw one-hot numbers, side by side; their gradients are those of the probabilities
        (straight-through, Bengio 2013, arXiv:1308.3432)."""
        p, chosen = jnp.exp(self.log_p), jax.random.categorical(key, self.log_p)
        drawn = jax.nn.one_hot(chosen, p.shape[-1], dtype=p.dtype) + p - jax.lax.stop_gradient(p)
        return drawn.reshape(*drawn.shape[:-2], -1)

    def kl(self, other: OneHotGroups) -> Float[Array, "..."]:
        """Return KL(self || other), the sum of the groups', in nats."""
        return jnp.sum(jnp.exp(self.log_p) * (self.log_p - other.log_p), (-2, -1))
