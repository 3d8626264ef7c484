"""Normalisers of observations and rewards. They are part of an agent's state, so of checkpoints."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float

from sterling.equations.running_moments import Moments
from sterling.nets.obs_encoder import leaf_spaces, padded_leaves, without_mask
from sterling.problem.goal_obs import ACHIEVED, DESIRED, has_goals
from sterling.types import Obs, Record, Spec

STD_OFFSET = 1e-3


class ObsNormaliser(eqx.Module):
    """Normalises every number of an observation's float leaves (each ``Box`` of a float dtype),
    float images pixel by pixel. All other leaves stay unchanged: images of bytes, vectors of
    integers, choices, bits and the items of padded sequences.

    Nothing is normalised if ``enabled`` was False. With running statistics results are clipped to
    ``clip`` deviations, because the first statistics come from few steps; a dataset's statistics
    are complete, so nothing is clipped.
    """

    moments: tuple[Moments | None, ...]
    clip: float = eqx.field(static=True, default=10.0)

    @classmethod
    def create(
        cls, space: spaces.Space[Any], enabled: bool = True, clip: float = 10.0
    ) -> ObsNormaliser:
        """Create a normaliser with running statistics for observations from ``space``."""
        made = [
            Moments.create(leaf.shape)
            if enabled
            and not padded
            and isinstance(leaf, spaces.Box)
            and np.issubdtype(leaf.dtype, np.floating)
            else None
            for leaf, padded in zip(leaf_spaces(space), padded_leaves(space), strict=True)
        ]
        return cls(tuple(made), clip)

    @classmethod
    def of_log(cls, spec: Spec, enabled: bool = True) -> ObsNormaliser:
        """Create a normaliser with the dataset's moments, ``spec.log``. 1e-3 is added to standard
        deviations (Fujimoto 2021): a number that is constant in the dataset may vary later.
        Achieved and desired goals share moments, because learners compare them. Without a dataset
        the tree has the same structure, so an agent can be loaded without it."""
        made = cls.create(spec.obs, enabled, math.inf)
        if spec.log is None:
            return made
        known = spec.log.obs_mean, spec.log.obs_std
        mean, std = _with_shared_goals(*known) if has_goals(spec.obs) else known
        means, deviations = (jax.tree.leaves(without_mask(x)) for x in (mean, std))
        fixed = [
            None if m is None else Moments.known(mean, np.square(std + STD_OFFSET))
            for m, mean, std in zip(made.moments, means, deviations, strict=True)
        ]
        return cls(tuple(fixed), made.clip)

    def __call__(self, obs: Obs) -> Obs:
        """Normalise observations; ``action_mask`` stays unchanged."""
        proper = without_mask(obs)
        parts, structure = jax.tree.flatten(proper)
        made = [self._one(x, m) for x, m in zip(parts, self.moments, strict=True)]
        normal = jax.tree.unflatten(structure, made)
        return {**obs, **normal} if isinstance(obs, dict) else normal

    def batch(self, batch: Record) -> Record:
        """Return the batch, and the rows beside it, with normalised observations."""
        beside = {name: self.batch(each) for name, each in batch.beside.items()}
        obs, next_obs = self(batch.obs), self(batch.next_obs)
        return dataclasses.replace(batch, obs=obs, next_obs=next_obs, beside=beside)

    def update(self, obs: Obs, mask: Bool[Array, "..."]) -> ObsNormaliser:
        """Merge a batch of observations into the statistics."""
        parts = jax.tree.leaves(without_mask(obs))
        made = [
            None if m is None else m.update(x, mask)
            for x, m in zip(parts, self.moments, strict=True)
        ]
        return ObsNormaliser(tuple(made), self.clip)

    def joined(self, seen: Any, mask: Bool[Array, "env"]) -> ObsNormaliser:
        """Merge the observations of whole episodes, given as moments for every env (``Seen``)."""
        counts = jnp.where(mask, seen.count, 0.0)
        episodes = zip(seen.mean, seen.remainder, seen.squares, strict=True)
        made = [
            None if m is None else m.with_episodes(counts, *each)
            for m, each in zip(self.moments, episodes, strict=True)
        ]
        return ObsNormaliser(tuple(made), self.clip)

    def _one(self, x: Array, moments: Moments | None) -> Array:
        return x if moments is None else jnp.clip(moments.normalise(x), -self.clip, self.clip)


def _with_shared_goals(mean: Any, std: Any) -> tuple[Any, Any]:
    """Return the moments of a log's observations with those of all goals, achieved and desired, for
    either. Desired goals that never differ are unknown ones, and do not count."""
    achieved, desired = ((mean[name], std[name]) for name in (ACHIEVED, DESIRED))
    if np.any(desired[1]):
        middle = (achieved[0] + desired[0]) / 2
        apart = np.square((achieved[0] - desired[0]) / 2)
        square = (np.square(achieved[1]) + np.square(desired[1])) / 2 + apart
        achieved = middle, np.sqrt(square).astype(desired[1].dtype)
    goals = (dict.fromkeys((ACHIEVED, DESIRED), each) for each in achieved)
    shared = [{**own, **each} for own, each in zip((mean, std), goals, strict=True)]
    return shared[0], shared[1]


class RewardNormaliser(eqx.Module):
    """Divides rewards by the running standard deviation of the discounted return (Engstrom 2020).

    With ``enabled`` False rewards stay unchanged.
    """

    moments: Moments
    running: Float[Array, "env"]  # each env's discounted return so far
    enabled: bool = eqx.field(static=True)
    clip: float = eqx.field(static=True, default=10.0)

    @classmethod
    def create(cls, envs: int, enabled: bool = True) -> RewardNormaliser:
        """Create a normaliser that has seen no rewards."""
        return cls(Moments.create(()), jnp.zeros(envs), enabled)

    def update(
        self,
        reward: Float[Array, "time env"],
        last: Bool[Array, "time env"],
        mask: Bool[Array, "time env"],
        gamma: Float[Array, ""] | float,
    ) -> RewardNormaliser:
        """Merge a rollout's discounted returns; the running return restarts with each episode."""
        if not self.enabled:
            return self
        running, returns = running_returns(self.running, reward, last, mask, gamma)
        moments = self.moments.update(returns, mask)
        return RewardNormaliser(moments, running, self.enabled, self.clip)

    def scale(self, reward: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return rewards in units of the return's standard deviation, clipped."""
        if not self.enabled:
            return reward
        return jnp.clip(reward / self.moments.deviation, -self.clip, self.clip)


class ReturnScale(eqx.Module):
    """Divides rewards so that discounted returns have deviation 1 and stay within ``bound``:

        scale = max(sd(G), max |G| / bound),   G_t = gamma G_{t-1} + r_t

    as SimBa v2 does (Lee 2025, arXiv:2502.15280, section 4). G restarts with each episode. With
    ``enabled`` False rewards stay unchanged.
    """

    statistics: RewardNormaliser
    largest: Float[Array, ""]  # max |G| so far

    @classmethod
    def create(cls, envs: int, enabled: bool = True) -> ReturnScale:
        """Create the scale of a run that has seen no rewards."""
        return cls(RewardNormaliser.create(envs, enabled), jnp.zeros(()))

    def update(
        self,
        reward: Float[Array, "time env"],
        last: Bool[Array, "time env"],
        mask: Bool[Array, "time env"],
        gamma: Float[Array, ""] | float,
    ) -> ReturnScale:
        """Count a rollout's discounted returns."""
        seen = self.statistics
        if not seen.enabled:
            return self
        running, returns = running_returns(seen.running, reward, last, mask, gamma)
        moments = seen.moments.update(returns, mask)
        largest = jnp.maximum(self.largest, jnp.max(jnp.where(mask, jnp.abs(returns), 0.0)))
        return ReturnScale(RewardNormaliser(moments, running, True, seen.clip), largest)

    def divisor(self, bound: Float[Array, ""] | float) -> Float[Array, ""]:
        """Return the scale."""
        if not self.statistics.enabled:
            return jnp.ones(())
        return jnp.maximum(self.statistics.moments.deviation, self.largest / bound)


def running_returns(
    running: Float[Array, "env"],
    reward: Float[Array, "time env"],
    last: Bool[Array, "time env"],
    mask: Bool[Array, "time env"],
    gamma: Float[Array, ""] | float,
) -> tuple[Float[Array, "env"], Float[Array, "time env"]]:
    """Return each env's discounted return after the rollout, and after each of its rows; it
    restarts with each episode. ``running`` is what it was before the rollout."""

    def step(running: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        reward, last, mask = row
        running = jnp.where(mask, gamma * running + reward, 0.0)
        return jnp.where(last, 0.0, running), running

    return jax.lax.scan(step, running, (reward, last, mask))
