"""Run whole episodes, one per env, to their end or to a step limit.

Evaluation uses this, and so do learners that need episode returns only
(``population_episodes.py``). Random numbers depend on the keys and on a clock that counts over all
episodes of these keys, so no two steps share one. The key names ("evaluate-...") are those of
evaluation.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from sterling import random_keys as named
from sterling.actor import Actor, Past
from sterling.equations.running_moments import rounded_sum
from sterling.experience import acting
from sterling.experience.levels.one_level import begin_in_one_level
from sterling.experience.rollouts import episode_totals
from sterling.experience.rollouts.empty_choices import find_empty_choice, has_mask
from sterling.experience.rollouts.episode_rows import EpisodeRows, episode_row
from sterling.experience.rollouts.episode_totals import Totals
from sterling.nets.obs_encoder import without_mask
from sterling.problem.channels import Channel
from sterling.problem.critic_only_obs import without_entries
from sterling.types import Action, AnyArray, Obs, Record, Step, World

BLOCK = 20  # steps between two checks, in a compiled program, whether all episodes are over


class ObsMoments(eqx.Module):
    """Mean and variance of the observations that each episode acted on (Welford 1962).

    There is one entry per float array of the observation, in the space's order; None for others.
    """

    count: Float[Array, "..."]
    mean: tuple[Array | None, ...]
    remainder: tuple[Array | None, ...]  # what float32 rounds off the mean
    squares: tuple[Array | None, ...]  # sums of squared deviations from the mean
    unseen: tuple[str, ...] = eqx.field(static=True, default=())  # entries that only critics see

    @classmethod
    def empty(cls, obs: Obs, shape: tuple[int, int], unseen: tuple[str, ...] = ()) -> ObsMoments:
        """Return the moments of episodes without steps, for observations like ``obs`` without its
        ``unseen`` entries."""
        parts = jax.tree.leaves(without_entries(without_mask(obs), unseen))
        none = tuple(jnp.zeros(x.shape) if x.dtype.kind == "f" else None for x in parts)
        return cls(jnp.zeros(shape), none, none, none, unseen)

    def with_observation(self, obs: Obs, counts: Bool[Array, "seed env"]) -> ObsMoments:
        """Return the moments with one more observation, counted only where ``counts`` is True."""
        more = counts.astype(jnp.float32)
        count, mean = self.count + more, list(self.mean)
        rest, squares = list(self.remainder), list(self.squares)
        for i, x in enumerate(jax.tree.leaves(without_entries(without_mask(obs), self.unseen))):
            m, r, s = self.mean[i], self.remainder[i], self.squares[i]
            if m is None or r is None or s is None:
                continue
            wide = (*counts.shape, *(1,) * (m.ndim - counts.ndim))
            share = (more / jnp.maximum(count, 1.0)).reshape(wide)
            ahead = jnp.where(share > 0, (x - m) - r, 0.0)
            mean[i], rest[i] = rounded_sum(m, r + ahead * share)
            squares[i] = s + ahead * (ahead - ahead * share)
        return ObsMoments(count, tuple(mean), tuple(rest), tuple(squares), self.unseen)


class EpisodeState(eqx.Module):
    """One episode per env, running or over; steps after its end do not count."""

    state: PyTree
    obs: Obs
    totals: Totals  # by channel
    over: Bool[Array, "seed env"]
    past: Past | None  # None for actors without a memory
    crashes: Int[Array, "seed env"]  # how often the world crashed and the episode started over
    seen: ObsMoments | None = None  # None: not tracked
    empty_choice: Int[Array, "seed"] | None = None  # as in Tally; None: not tracked
    rows: EpisodeRows | None = None  # of all steps; None: not recorded


OnStep = Callable[[EpisodeState, Action, Step], None]


class EpisodeRunner(eqx.Module):
    """Runs one episode per env of ``world``, with an actor that does not explore."""

    world: World = eqx.field(static=True)
    watched: bool = eqx.field(static=True, default=False)  # track moments and masks of observations
    one_level: bool = eqx.field(static=True, default=False)  # begin in the level of ``level_keys``
    recorded: int = eqx.field(static=True, default=0)  # record so many steps as rows

    def begin(self, actor: Actor, keys: Key[Array, "seed"], number: int = 0) -> EpisodeState:
        """Return the ``number``-th episode of every env, before its first step."""
        world = self.world
        state, obs = world.reset(named.fold_each(keys, "evaluate", number))
        if self.one_level:
            state, obs = begin_in_one_level(world, state, obs, self.level_keys(keys, number))
        past = _initial_past(actor, world, named.fold_each(keys, "evaluate-memory", number))
        shape = (world.seeds, world.spec.envs)
        totals = episode_totals.empty_totals(world.spec.channels, shape)
        seen = ObsMoments.empty(obs, shape, world.spec.unseen) if self.watched else None
        over, crashes = jnp.zeros(shape, bool), jnp.zeros(shape, jnp.int32)
        masked = self.watched and has_mask(world.spec)
        empty = find_empty_choice(world.spec, obs, over) if masked else None
        playing = EpisodeState(state, obs, totals, over, past, crashes, seen, empty)
        if not self.recorded:
            return playing
        return dataclasses.replace(playing, rows=self._empty_rows(actor, playing, keys))

    def _empty_rows(
        self, actor: Actor, playing: EpisodeState, keys: Key[Array, "seed"]
    ) -> EpisodeRows:
        """Return room for the rows of the episodes that begin."""

        def first(obs: Obs, past: Past | None, keys: Key[Array, "seed"]) -> Record:
            action, _, extras = acting.choose(actor, past, obs, keys, False)
            none, no = jnp.zeros(playing.over.shape), jnp.zeros_like(playing.over)
            shape = playing.over.shape
            channels = self.world.spec.channels
            told: Any = {name: jnp.zeros((*shape, *each.shape)) for name, each in channels.items()}
            return episode_row(action, extras, Step(obs, none, none, no, no, channels=told))

        row = eqx.filter_eval_shape(first, playing.obs, playing.past, keys)
        return EpisodeRows.empty(playing.obs, row, self.recorded)

    def level_keys(self, keys: Key[Array, "seed"], number: int) -> Key[Array, "seed"]:
        """Return the keys that draw the levels of the ``number``-th episodes (``one_level.py``),
        for runners with ``one_level``."""
        return named.fold_each(keys, "evaluate-level", number)

    def advance(
        self,
        actor: Actor,
        playing: EpisodeState,
        keys: Key[Array, "seed"],
        clock: int,
        steps: int,
        *,
        notice: OnStep | None = None,
    ) -> EpisodeState:
        """Take up to ``steps`` steps in every env, fewer if all episodes are over.

        ``clock`` counts the steps taken before. For traced worlds all steps are one compiled
        program, except with ``notice``: it is called after every step with the episodes before the
        step, the actions, and the world's answer.
        """
        if self.world.traced and notice is None:
            return _run_compiled(self.world, actor, playing, (keys, np.int32(clock)), steps)
        take = _step_compiled if self.world.traced else _step
        for passed in range(steps):
            if bool(playing.over.all()):  # a step may be expensive
                break
            before = playing
            playing, action, answer = take(
                self.world, actor, playing, keys, np.int32(clock + passed)
            )
            if notice is not None:
                notice(before, action, answer)
        return playing

    def column_values(self, playing: EpisodeState) -> dict[str, Array]:
        """Return the episodes' values by column of the world's channels, ``(seed, env)``."""
        channels = self.world.spec.channels
        numbers = episode_totals.channel_values(channels, playing.totals)
        return episode_totals.split_columns(channels, numbers)


@eqx.filter_jit
def _initial_past(actor: Actor, world: World, start: Key[Array, "seed"]) -> Past | None:
    return acting.initial_past(actor, world.spec, (world.seeds, world.spec.envs), start)


def run_steps(
    world: World, actor: Actor, playing: EpisodeState, chance: tuple[Any, Any], steps: int
) -> EpisodeState:
    """Take up to ``steps`` steps in a traced world, inside a program; ``chance`` is (keys, first
    clock value)."""
    keys, clock = chance
    block = math.gcd(steps, BLOCK)

    def step(time: Array, playing: EpisodeState) -> EpisodeState:
        return _step(world, actor, playing, keys, clock + time)[0]

    def going(carry: tuple[Array, EpisodeState]) -> Array:
        time, playing = carry
        return (time < steps) & ~playing.over.all()

    def some(carry: tuple[Array, EpisodeState]) -> tuple[Array, EpisodeState]:
        begun, playing = carry
        playing = jax.lax.fori_loop(0, block, lambda i, now: step(begun + i, now), playing)
        return begun + block, playing

    return jax.lax.while_loop(going, some, (jnp.zeros((), jnp.int32), playing))[1]


_run_compiled = eqx.filter_jit(run_steps)


def _step(
    world: World, actor: Actor, playing: EpisodeState, keys: Any, clock: Any
) -> tuple[EpisodeState, Action, Step]:
    """Take one step; also return the actions and the world's answer."""
    action, memory, its, extras = _choose_actions(
        actor, playing.obs, playing.past, keys, clock, recorded=playing.rows is not None
    )
    state, step = world.step(playing.state, action, its)
    past = None
    if memory is not None:
        own = named.fold_each(keys, "evaluate-memory", clock)
        past = _next_past(actor, memory, action, step, own)
    counted = _count_step(playing, world.spec.channels, step)
    if counted.empty_choice is not None:
        empty = find_empty_choice(world.spec, step.obs, counted.over | step.last)
        empty = jnp.maximum(counted.empty_choice, empty)
        counted = dataclasses.replace(counted, empty_choice=empty)
    if playing.rows is not None:
        rows = _add_row((playing.over, action, extras, step, clock), playing.rows)
        counted = dataclasses.replace(counted, rows=rows)
    return dataclasses.replace(counted, state=state, obs=step.obs, past=past), action, step


_step_compiled = eqx.filter_jit(_step)


_next_past = eqx.filter_jit(acting.next_past)


@eqx.filter_jit
def _choose_actions(
    actor: Actor,
    obs: Obs,
    past: Past | None,
    keys: Key[Array, "seed"],
    clock: Int[AnyArray, ""],
    *,
    recorded: bool,
) -> Any:
    """Return the actions, the new memory, the world's keys, and the extras if they are recorded."""
    own = named.fold_each(keys, "evaluate-act", clock)
    its = named.fold_each(keys, "evaluate-world", clock)
    action, memory, extras = acting.choose(actor, past, obs, own, False)
    return action, memory, its, extras if recorded else {}


@eqx.filter_jit(donate="all-except-first")  # on the host rows are written in place
def _add_row(made: tuple[Any, ...], rows: EpisodeRows) -> EpisodeRows:
    over, action, extras, step, clock = made
    return rows.with_step(clock, (action, extras, step), over)


@eqx.filter_jit
def _count_step(playing: EpisodeState, channels: dict[str, Channel], step: Step) -> EpisodeState:
    """Count one step. Where a world crashed and restarted, its episode starts over."""
    counted = step.counted
    counts = ~playing.over & jnp.asarray(step.mask)
    crashed = ~playing.over & step.last & ~step.mask
    totals = episode_totals.add_step(
        channels, playing.totals, counted.reward, step.channels, counts
    )
    return dataclasses.replace(
        playing,
        totals=episode_totals.reset_totals(channels, totals, crashed),
        over=playing.over | (counted.last & counts),
        crashes=playing.crashes + crashed.astype(jnp.int32),
        seen=None if playing.seen is None else playing.seen.with_observation(playing.obs, counts),
    )
