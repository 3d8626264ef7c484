"""Experience lived with the help of a policy that was learned before."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from sterling import keys as named
from sterling.actor import Actor, Past
from sterling.experience import acting
from sterling.experience.draws import Ready, Wrapped
from sterling.experience.rollout import Rollout
from sterling.types import Action, Obs, Record


class JumpStart(eqx.Module):
    """The guide begins each episode and the learner takes over (Uchendu 2023, "Jump-start
    reinforcement learning", arXiv:2204.02372, algorithm 1 in its random form).

    An episode's handover is drawn uniformly from 0 to ``steps``, a bound that falls to 0 along a
    line over ``fade`` draws: the paper's curriculum by time, not by a threshold of the return. With
    0 the whole episode is the learner's.
    """

    until: Int[Array, "seed env"]  # the step at which the learner takes over
    draws: Int[Array, ""]
    steps: int = eqx.field(static=True)
    fade: int = eqx.field(static=True)

    @classmethod
    def create(cls, seeds: int, envs: int, steps: int, fade: int) -> JumpStart:
        """Nothing lived yet."""
        return cls(jnp.zeros((seeds, envs), jnp.int32), jnp.zeros((), jnp.int32), steps, fade)

    def begin(self, length: Int[Array, "seed env"], keys: Key[Array, "seed"]) -> JumpStart:
        """Draw the handover of episodes that are about to begin."""
        left = jnp.maximum(1.0 - self.draws.astype(jnp.float32) / self.fade, 0.0)
        draw = jax.vmap(lambda key: jax.random.uniform(key, length.shape[1:]))(keys)
        fresh = jnp.floor(draw * (left * self.steps + 1.0)).astype(jnp.int32)
        until = jnp.where(length == 0, fresh, self.until)
        return JumpStart(until, self.draws + 1, self.steps, self.fade)

    def guided(
        self, length: Array, values: tuple[Array, Array] | None, keys: Key[Array, "seed"]
    ) -> Bool[Array, "seed env"]:
        """Where the guide acts."""
        return length < self.until


class Expansion(eqx.Module):
    """Guide and learner both propose, and a critic chooses (Zhang 2023, "Policy expansion for
    bridging offline-to-online reinforcement learning", arXiv:2302.00935, eq. 4):

        P(guide) = softmax( Q(s, a_guide) / T, Q(s, a_learner) / T )

    Deviation from the paper: the final policy is the learner's alone.
    """

    temperature: float = eqx.field(static=True)

    def begin(self, length: Int[Array, "seed env"], keys: Key[Array, "seed"]) -> Expansion:
        """Nothing is drawn beforehand."""
        return self

    def guided(
        self, length: Array, values: tuple[Array, Array] | None, keys: Key[Array, "seed"]
    ) -> Bool[Array, "seed env"]:
        """Where the guide's proposal is taken."""
        assert values is not None
        chance = jax.nn.sigmoid((values[0] - values[1]) / self.temperature)
        return jax.vmap(jax.random.bernoulli)(keys, chance)


class Pair(eqx.Module):
    """Guide and learner as one actor, at one step."""

    learner: Any
    guide: Any
    rule: JumpStart | Expansion
    length: Any  # steps done of the episode, ``(seed, env)``; None: nobody acts yet

    def act(
        self, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, dict[str, Array]]:
        """The action of whoever acts in each env."""
        action, _, extras = self._chosen((None, None), obs, keys, explore)
        return action, extras

    def memory(self, envs: int, keys: Key[Array, "seed"]) -> Any:
        """The learner's and the guide's; None where both act by what they see alone."""
        pair = (
            acting.memory_of(self.learner, envs, named.fold_each(keys, "learner")),
            acting.memory_of(self.guide, envs, named.fold_each(keys, "guide")),
        )
        return None if pair == (None, None) else pair

    def recall(
        self, past: Past, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, Any, dict[str, Array]]:
        """The action of whoever acts in each env; both remember what was really done."""
        pasts = acting.of(past, past.memory[0]), acting.of(past, past.memory[1])
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
        its, theirs, _ = acting.choose(self.guide, pasts[1], obs, both[1], explore)
        values = None
        if isinstance(self.rule, Expansion):
            values = self.learner.action_value(obs, its), self.learner.action_value(obs, own)
        guided = self.rule.guided(self.length, values, named.fold_each(keys, "whose"))

        def choose(its: Array, own: Array) -> Array:
            return jnp.where(guided.reshape(*guided.shape, *(1,) * (own.ndim - 2)), its, own)

        return jax.tree.map(choose, its, own), (mine, theirs), extras


def _learner_s(past: Past | None) -> Past | None:
    return None if past is None else acting.of(past, past.memory[0])


Lived = tuple[Rollout, JumpStart | Expansion]


class Guided(Wrapped, eqx.Module):
    """A rollout in which ``guide``, whose parameters stay as they are, acts now and then."""

    source: Rollout
    guide: Any  # None while a run is written: it has a folder of its own
    rule: JumpStart | Expansion

    @classmethod
    def create(
        cls,
        begin: Callable[[Actor], Rollout],
        learner: Actor,
        guide: Any,
        rule: JumpStart | Expansion,
    ) -> Guided:
        """``begin(actor)`` makes the rollout, with what ``actor`` remembers."""
        return cls(begin(Pair(learner, guide, rule, None)), guide, rule)

    length = property(lambda self: self.source.length, doc="Steps lived at a time.")
    world = property(lambda self: self.source.world, doc="That experience comes from.")
    past = property(lambda self: _learner_s(self.source.past), doc="What the learner remembers.")
    obs = property(lambda self: self.source.obs, doc="What the agent sees now.")

    def collect(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Guided, Ready]:
        """Act for ``length`` steps: one batch is all of them."""
        source, rows = self.live(agent, keys)
        return source, Ready(rows)

    def live(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Guided, Record]:
        """Act for ``length`` steps, ``(seed, time, env, ...)``."""

        def step(lived: Lived, time: Int[Array, ""] | int) -> tuple[Lived, Record]:
            source, rule = lived
            own = named.fold_each(keys, "step", time)
            done = source.episode.length
            rule = rule.begin(done, named.fold_each(own, "handover"))
            source, row = source.live(Pair(agent, self.guide, rule, done), own)
            return (source, rule), dataclasses.replace(row, start=None)

        lived: Lived = (self.source.lasting(1), self.rule)
        if self.traced:  # written out, a program of many steps takes minutes to compile
            times = jnp.arange(self.length, dtype=jnp.int32)
            (source, rule), rows = jax.lax.scan(step, lived, times)
            record = jax.tree.map(lambda x: jnp.swapaxes(x[:, :, 0], 0, 1), rows)
        else:
            (source, rule), record = _on_host(step, lived, self.length)
        record = dataclasses.replace(record, start=self.past)
        return Guided(source.lasting(self.length), self.guide, rule), record

    def lasting(self, length: int) -> Guided:
        """The same, living so many steps at a time."""
        return dataclasses.replace(self, source=self.source.lasting(length))

    def stored(self) -> Guided:
        """What of it is written."""
        return dataclasses.replace(self, source=self.source.stored(), guide=None)

    def restored(self, fresh: Guided) -> Guided:
        """The inverse of :meth:`stored`."""
        source = self.source.restored(fresh.source)
        return dataclasses.replace(self, source=source, guide=fresh.guide)


def _on_host(
    step: Callable[[Lived, int], tuple[Lived, Record]], lived: Lived, length: int
) -> tuple[Lived, Record]:
    """Step after step of a world that is no program; rows ``(seed, time, env, ...)``."""
    rows = []
    for time in range(length):
        lived, row = step(lived, time)
        rows.append(row)
    return lived, jax.tree.map(lambda *each: jnp.concatenate(each, 1), *rows)
