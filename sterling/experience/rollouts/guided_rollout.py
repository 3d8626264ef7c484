"""Rollouts in which a pretrained guide policy acts part of the time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from sterling import random_keys as named
from sterling.actor import Actor, Past
from sterling.experience import acting
from sterling.experience.batch_draws import Due, PreparedBatches, SourceWrapper, every_feed
from sterling.experience.rollouts.rollout import Rollout
from sterling.needs.feed import TEACHER_ACTION
from sterling.types import Action, Obs, Record


class JumpStart(eqx.Module):
    """Jump-start: the guide acts first in each episode, then the learner takes over (Uchendu 2023,
    "Jump-start reinforcement learning", arXiv:2204.02372, algorithm 1 in its random form).

    The handover step of an episode is drawn uniformly from 0 to a bound, which falls linearly from
    ``steps`` to 0 over ``fade`` draws: the paper's curriculum by time, not by a return threshold.
    At 0 the learner acts in the whole episode.
    """

    until: Int[Array, "seed env"]  # step at which the learner takes over
    draws: Int[Array, ""]
    steps: int = eqx.field(static=True)
    fade: int = eqx.field(static=True)

    @classmethod
    def create(cls, seeds: int, envs: int, steps: int, fade: int) -> JumpStart:
        """Create the rule before the first episode."""
        return cls(jnp.zeros((seeds, envs), jnp.int32), jnp.zeros((), jnp.int32), steps, fade)

    def begin(self, length: Int[Array, "seed env"], keys: Key[Array, "seed"]) -> JumpStart:
        """Draw the handover step of episodes that are about to begin."""
        left = jnp.maximum(1.0 - self.draws.astype(jnp.float32) / self.fade, 0.0)
        draw = jax.vmap(lambda key: jax.random.uniform(key, length.shape[1:]))(keys)
        fresh = jnp.floor(draw * (left * self.steps + 1.0)).astype(jnp.int32)
        until = jnp.where(length == 0, fresh, self.until)
        return JumpStart(until, self.draws + 1, self.steps, self.fade)

    def guided(
        self, length: Array, values: tuple[Array, Array] | None, keys: Key[Array, "seed"]
    ) -> Bool[Array, "seed env"]:
        """Return where the guide acts."""
        return length < self.until


class Expansion(eqx.Module):
    """Policy expansion: guide and learner both propose an action, and a critic chooses (Zhang 2023,
    "Policy expansion for bridging offline-to-online reinforcement learning", arXiv:2302.00935, eq.
    4):

        P(guide) = softmax( Q(s, a_guide) / T, Q(s, a_learner) / T )

    Deviation from the paper: the final policy is the learner's alone.
    """

    temperature: float = eqx.field(static=True)

    def begin(self, length: Int[Array, "seed env"], keys: Key[Array, "seed"]) -> Expansion:
        """No-op: nothing is drawn per episode."""
        return self

    def guided(
        self, length: Array, values: tuple[Array, Array] | None, keys: Key[Array, "seed"]
    ) -> Bool[Array, "seed env"]:
        """Draw where the guide's action is taken."""
        assert values is not None
        chance = jax.nn.sigmoid((values[0] - values[1]) / self.temperature)
        return jax.vmap(jax.random.bernoulli)(keys, chance)


class Teaching(eqx.Module):
    """The guide is a teacher: it acts in the first ``steps`` steps of each env, then the learner
    acts (DAgger, Ross 2011). The actor records the teacher's action in every row, as
    ``extras["teacher_action"]``."""

    draws: Int[Array, ""]  # steps of each env so far
    steps: int = eqx.field(static=True)

    @classmethod
    def create(cls, steps: int) -> Teaching:
        """Create the rule before the first step."""
        return cls(jnp.zeros((), jnp.int32), steps)

    def begin(self, length: Int[Array, "seed env"], keys: Key[Array, "seed"]) -> Teaching:
        """Count a step."""
        return Teaching(self.draws + 1, self.steps)

    def guided(
        self, length: Array, values: tuple[Array, Array] | None, keys: Key[Array, "seed"]
    ) -> Bool[Array, "seed env"]:
        """Return where the teacher acts."""
        return jnp.broadcast_to(self.draws <= self.steps, length.shape)


Rule = JumpStart | Expansion | Teaching


class GuidedActor(eqx.Module):
    """Guide and learner as one actor, for one step."""

    learner: Any
    guide: Any
    rule: Rule
    length: Any  # steps of the episode so far, ``(seed, env)``; None before acting

    def act(
        self, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, dict[str, Array]]:
        """Return each env's action, by the guide or by the learner."""
        action, _, extras = self._chosen((None, None), obs, keys, explore)
        return action, extras

    def memory(self, envs: int, keys: Key[Array, "seed"]) -> Any:
        """Return the memories of learner and guide; None if neither has one."""
        pair = (
            acting.initial_memory(self.learner, envs, named.fold_each(keys, "learner")),
            acting.initial_memory(self.guide, envs, named.fold_each(keys, "guide")),
        )
        return None if pair == (None, None) else pair

    def recall(
        self, past: Past, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, Any, dict[str, Array]]:
        """Return each env's action, and both new memories, updated with the actions really
        taken."""
        pasts = acting.with_memory(past, past.memory[0]), acting.with_memory(past, past.memory[1])
        return self._chosen(pasts, obs, keys, explore)

    def _chosen(
        self,
        pasts: tuple[Past | None, Past | None],
        obs: Obs,
        keys: Key[Array, "seed"],
        explore: bool,
    ) -> tuple[Action, Any, dict[str, Array]]:
        both = named.fold_each(keys, "learner"), named.fold_each(keys, "guide")
        own, mine, extras = acting.choose(self.learner, pasts[0], obs, both[0], explore)
        sampled = explore and not isinstance(self.rule, Teaching)
        its, theirs, _ = acting.choose(self.guide, pasts[1], obs, both[1], sampled)
        if isinstance(self.rule, Teaching):
            extras = {**extras, TEACHER_ACTION: its}
        values = None
        if isinstance(self.rule, Expansion):
            values = self.learner.action_value(obs, its), self.learner.action_value(obs, own)
        guided = self.rule.guided(self.length, values, named.fold_each(keys, "whose"))

        def choose(its: Array, own: Array) -> Array:
            return jnp.where(guided.reshape(*guided.shape, *(1,) * (own.ndim - 2)), its, own)

        return jax.tree.map(choose, its, own), (mine, theirs), extras


def _learner_past(past: Past | None) -> Past | None:
    return None if past is None else acting.with_memory(past, past.memory[0])


GuidedState = tuple[Rollout, Rule]


class GuidedRollout(SourceWrapper, eqx.Module):
    """A rollout in which a frozen ``guide`` acts part of the time."""

    source: Rollout
    guide: Any  # None in a checkpoint: the guide has its own folder
    rule: Rule

    @classmethod
    def create(
        cls,
        begin: Callable[[Actor], Rollout],
        learner: Actor,
        guide: Any,
        rule: Rule,
    ) -> GuidedRollout:
        """Create the source; ``begin(actor)`` makes the rollout, with the memory of ``actor``."""
        return cls(begin(GuidedActor(learner, guide, rule, None)), guide, rule)

    length = property(lambda self: self.source.length, doc="Steps per rollout.")
    world = property(lambda self: self.source.world, doc="The world that experience comes from.")
    past = property(
        lambda self: _learner_past(self.source.past),
        doc="The learner's past; None without a memory.",
    )
    obs = property(lambda self: self.source.obs, doc="The current observations.")

    @property
    def recorded(self) -> dict[str, Any]:
        """The extras that this source adds to rows, by their shapes and types."""
        if not isinstance(self.rule, Teaching):
            return {}
        seeds = self.world.seeds
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), seeds))
        past = (
            None
            if self.source.past is None
            else acting.with_memory(self.source.past, self.source.past.memory[1])
        )
        action = eqx.filter_eval_shape(acting.choose, self.guide, past, self.obs, keys, False)[0]
        return {TEACHER_ACTION: action}

    def collect(
        self, agent: Actor, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[GuidedRollout, PreparedBatches]:
        """Act for ``length`` steps; all rows form one batch."""
        source, rows = self.live(agent, keys)
        return source, PreparedBatches(rows)

    def live(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[GuidedRollout, Record]:
        """Act for ``length`` steps; return rows ``(seed, time, env, ...)``."""

        def step(lived: GuidedState, time: Int[Array, ""] | int) -> tuple[GuidedState, Record]:
            source, rule = lived
            own = named.fold_each(keys, "step", time)
            done = source.episode.length
            rule = rule.begin(done, named.fold_each(own, "handover"))
            source, row = source.live(GuidedActor(agent, self.guide, rule, done), own)
            return (source, rule), dataclasses.replace(row, start=None)

        lived: GuidedState = (self.source.with_length(1), self.rule)
        if self.traced:  # an unrolled program of many steps takes minutes to compile
            times = jnp.arange(self.length, dtype=jnp.int32)
            (source, rule), rows = jax.lax.scan(step, lived, times)
            record = jax.tree.map(lambda x: jnp.swapaxes(x[:, :, 0], 0, 1), rows)
        else:
            (source, rule), record = _scan_on_host(step, lived, self.length)
        record = dataclasses.replace(record, start=self.past)
        return GuidedRollout(source.with_length(self.length), self.guide, rule), record

    def with_length(self, length: int) -> GuidedRollout:
        """Return the source with another number of steps per rollout."""
        return dataclasses.replace(self, source=self.source.with_length(length))

    def to_checkpoint(self) -> GuidedRollout:
        """Return the part that a checkpoint saves: all but the guide."""
        return dataclasses.replace(self, source=self.source.to_checkpoint(), guide=None)

    def from_checkpoint(self, fresh: GuidedRollout) -> GuidedRollout:
        """Return the saved source, with the guide of ``fresh``."""
        source = self.source.from_checkpoint(fresh.source)
        return dataclasses.replace(self, source=source, guide=fresh.guide)


def _scan_on_host(
    step: Callable[[GuidedState, int], tuple[GuidedState, Record]], lived: GuidedState, length: int
) -> tuple[GuidedState, Record]:
    """Scan over steps of a host world; return rows ``(seed, time, env, ...)``."""
    rows = []
    for time in range(length):
        lived, row = step(lived, time)
        rows.append(row)
    return lived, jax.tree.map(lambda *each: jnp.concatenate(each, 1), *rows)
