"""Whole episodes: one of every env, to its end or to a limit of steps. Evaluation is this, and so
is the experience of who learns from what episodes came to (``population.py``).

Chances are a function of the keys and of a clock that goes on over all episodes of these keys, so
no two steps share one. The purposes' names are evaluation's.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from sterling import keys as named
from sterling.actor import Actor, Past
from sterling.channels import Channel
from sterling.experience import acting, episode_totals
from sterling.experience.episode_totals import Totals
from sterling.nets.encoder import without_mask
from sterling.types import AnyArray, Obs, Step, World
from sterling.unseen import without

BLOCK = 20  # steps between looks, inside a program, at whether all episodes are over


class Seen(eqx.Module):
    """Mean and variance of the observations that each episode acted on (Welford 1962), for the
    parts of floats, in the order of the space's; None for the others."""

    count: Float[Array, "..."]
    mean: tuple[Array | None, ...]
    squares: tuple[Array | None, ...]  # summed deviations from the mean
    unseen: tuple[str, ...] = eqx.field(static=True, default=())  # entries that nobody acts on

    @classmethod
    def nothing(cls, obs: Obs, shape: tuple[int, int], unseen: tuple[str, ...] = ()) -> Seen:
        """Of episodes of no steps, of which ``obs`` will be seen but for its ``unseen`` entries."""
        parts = jax.tree.leaves(without(without_mask(obs), unseen))
        none = tuple(jnp.zeros(x.shape) if x.dtype.kind == "f" else None for x in parts)
        return cls(jnp.zeros(shape), none, none, unseen)

    def with_one(self, obs: Obs, counts: Bool[Array, "seed env"]) -> Seen:
        """With one more observation, of the envs in which it ``counts``."""
        more = counts.astype(jnp.float32)
        count, mean, squares = self.count + more, list(self.mean), list(self.squares)
        for i, x in enumerate(jax.tree.leaves(without(without_mask(obs), self.unseen))):
            m, s = self.mean[i], self.squares[i]
            if m is None or s is None:
                continue
            wide = (*counts.shape, *(1,) * (m.ndim - counts.ndim))
            share = (more / jnp.maximum(count, 1.0)).reshape(wide)
            moved = m + jnp.where(share > 0, (x - m) * share, 0.0)
            mean[i], squares[i] = moved, s + jnp.where(share > 0, (x - m) * (x - moved), 0.0)
        return Seen(count, tuple(mean), tuple(squares), self.unseen)


class Playing(eqx.Module):
    """One episode per env, running or over; nothing that an env lives after it is over counts."""

    state: PyTree
    obs: Obs
    totals: Totals  # by channel
    over: Bool[Array, "seed env"]
    past: Past | None  # of actors that remember
    crashes: Int[Array, "seed env"]  # times that the world failed and the episode began again
    seen: Seen | None = None  # None: nobody asks


class Episodes(eqx.Module):
    """One episode of every env of ``world``, as an actor plays without exploring."""

    world: World = eqx.field(static=True)
    watched: bool = eqx.field(static=True, default=False)  # whether what is seen is counted

    def begin(self, actor: Actor, keys: Key[Array, "seed"], number: int = 0) -> Playing:
        """The ``number``-th episode of every env, before its first step."""
        world = self.world
        state, obs = world.reset(named.fold_each(keys, "evaluate", number))
        past = _begun(actor, world, named.fold_each(keys, "evaluate-memory", number))
        shape = (world.seeds, world.spec.envs)
        totals = episode_totals.begin(world.spec.channels, shape)
        seen = Seen.nothing(obs, shape, world.spec.unseen) if self.watched else None
        over, crashes = jnp.zeros(shape, bool), jnp.zeros(shape, jnp.int32)
        return Playing(state, obs, totals, over, past, crashes, seen)

    def go_on(
        self, actor: Actor, playing: Playing, keys: Key[Array, "seed"], clock: int, steps: int
    ) -> Playing:
        """So many steps of every env, fewer where all episodes are over; ``clock``: steps before.

        In a world that can be traced they are one program.
        """
        if self.world.traced:
            return _traced(self.world, actor, playing, (keys, np.int32(clock)), steps)
        for passed in range(steps):
            if bool(playing.over.all()):  # a step may be dear
                break
            playing = _step(self.world, actor, playing, keys, np.int32(clock + passed))
        return playing

    def found(self, playing: Playing) -> dict[str, Array]:
        """What the episodes came to, by column of the world's channels, ``(seed, env)``."""
        channels = self.world.spec.channels
        numbers = episode_totals.numbers(channels, playing.totals)
        return episode_totals.by_column(channels, numbers)


@eqx.filter_jit
def _begun(actor: Actor, world: World, start: Key[Array, "seed"]) -> Past | None:
    return acting.begin(actor, world.spec.action, (world.seeds, world.spec.envs), start)


@eqx.filter_jit
def _traced(
    world: World, actor: Actor, playing: Playing, chance: tuple[Any, Any], steps: int
) -> Playing:
    """``steps`` in one program, by keys and the clock's beginning."""
    keys, clock = chance
    block = math.gcd(steps, BLOCK)

    def step(time: Array, playing: Playing) -> Playing:
        return _step(world, actor, playing, keys, clock + time)

    def going(carry: tuple[Array, Playing]) -> Array:
        time, playing = carry
        return (time < steps) & ~playing.over.all()

    def some(carry: tuple[Array, Playing]) -> tuple[Array, Playing]:
        begun, playing = carry
        playing = jax.lax.fori_loop(0, block, lambda i, now: step(begun + i, now), playing)
        return begun + block, playing

    return jax.lax.while_loop(going, some, (jnp.zeros((), jnp.int32), playing))[1]


def _step(world: World, actor: Actor, playing: Playing, keys: Any, clock: Any) -> Playing:
    action, memory, its = _choose(actor, playing.obs, playing.past, keys, clock)
    state, step = world.step(playing.state, action, its)
    past = None
    if memory is not None:
        own = named.fold_each(keys, "evaluate-memory", clock)
        past = _answered(actor, memory, action, step, own)
    counted = _count(playing, world.spec.channels, step)
    return dataclasses.replace(counted, state=state, obs=step.obs, past=past)


_answered = eqx.filter_jit(acting.answered)


@eqx.filter_jit
def _choose(
    actor: Actor,
    obs: Obs,
    past: Past | None,
    keys: Key[Array, "seed"],
    clock: Int[AnyArray, ""],
) -> Any:
    """The action, what is remembered, and the world's keys."""
    own = named.fold_each(keys, "evaluate-act", clock)
    its = named.fold_each(keys, "evaluate-world", clock)
    action, memory, _ = acting.choose(actor, past, obs, own, False)
    return action, memory, its


@eqx.filter_jit
def _count(playing: Playing, channels: dict[str, Channel], step: Step) -> Playing:
    """Book one step. Where a world crashed it was restarted, and its episode begins again."""
    counted = step.counted
    counts = ~playing.over & jnp.asarray(step.mask)
    crashed = ~playing.over & step.last & ~step.mask
    totals = episode_totals.add(channels, playing.totals, counted.reward, step.channels, counts)
    return dataclasses.replace(
        playing,
        totals=episode_totals.begin_again(channels, totals, crashed),
        over=playing.over | (counted.last & counts),
        crashes=playing.crashes + crashed.astype(jnp.int32),
        seen=None if playing.seen is None else playing.seen.with_one(playing.obs, counts),
    )
