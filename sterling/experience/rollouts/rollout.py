"""Fresh on-policy rollouts: the source that all other sources of control experience build on."""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PyTree

from sterling import random_keys as named
from sterling.actor import Actor, Past
from sterling.experience import acting
from sterling.experience.batch_draws import Due, NoVisits, PreparedBatches, every_feed
from sterling.experience.rollouts import episode_totals
from sterling.experience.rollouts.empty_choices import find_empty_choice
from sterling.experience.rollouts.episode_tally import Tally
from sterling.experience.rollouts.episode_totals import Totals
from sterling.problem.channels import Channel
from sterling.types import Action, Mistake, Obs, Record, Step, World


class Episode(eqx.Module):
    """The state of the episode that each env is in."""

    totals: Totals  # by channel
    broken: Bool[Array, "seed env"]  # NaN was returned: rows are masked until the world resets

    length = property(
        lambda self: self.totals["length"], doc="Number of steps so far, (seed, env)."
    )


# left out of checkpoints if the world's state cannot be saved
UNSAVED = ("state", "obs", "episode", "past")


class Rollout(NoVisits, eqx.Module):
    """Takes ``length`` steps in every env of ``world`` with the current policy; returns a
    :class:`Record` with leaves ``(seed, time, env, ...)``."""

    world: World = eqx.field(static=True)
    length: int = eqx.field(static=True)
    state: PyTree  # the world's own
    obs: Obs  # the current observations
    episode: Episode
    tally: Tally
    past: Past | None = None  # None for actors without a memory
    # of "return" and "length": those that rows have as ``episode/NAME``, as they have the channels
    kept_totals: tuple[str, ...] = eqx.field(static=True, default=())

    @classmethod
    def create(
        cls, world: World, length: int, keys: Key[Array, "seed"], actor: Actor | None = None
    ) -> Rollout:
        """Reset the world; ``actor``, which will act, provides the initial memory (None: no
        memory)."""
        state, obs = world.reset(named.fold_each(keys, "reset"))
        # state and obs are both donated to programs
        obs = jax.tree.map(lambda leaf: leaf.copy(), obs)
        shape = (world.seeds, world.spec.envs)
        channels = world.spec.channels
        episode = Episode(episode_totals.empty_totals(channels, shape), jnp.zeros(shape, bool))
        start = named.fold_each(keys, "memory")
        begun = None if actor is None else acting.initial_past(actor, world.spec, shape, start)
        return cls(world, length, state, obs, episode, Tally.of_world(world), begun)

    @property
    def traced(self) -> bool:
        """Whether collecting can be compiled."""
        return self.world.traced

    @property
    def worlds(self) -> tuple[World, ...]:
        """Return the world that experience comes from."""
        return (self.world,)

    def with_length(self, length: int) -> Rollout:
        """Return the source with another number of steps per rollout."""
        return dataclasses.replace(self, length=length)

    def reset_statistics(self) -> Rollout:
        """Return the source with an empty tally."""
        return dataclasses.replace(self, tally=Tally.of_world(self.world))

    def to_checkpoint(self) -> Rollout:
        """Return the part that a checkpoint saves.

        The state of a world that cannot be saved (EnvPool's simulators, a Python process) is left
        out; such a world starts new episodes on resuming.
        """
        if self.world.exact:
            return self
        nothing = (None,) * len(UNSAVED)
        return eqx.tree_at(attrgetter(*UNSAVED), self, nothing, is_leaf=lambda x: x is None)

    def from_checkpoint(self, fresh: Rollout) -> Rollout:
        """Return the saved source, with the world's state of ``fresh`` if it could not be saved."""
        if self.world.exact:
            return self
        return dataclasses.replace(self, **{name: getattr(fresh, name) for name in UNSAVED})

    def close(self) -> None:
        """Close the world."""
        self.world.close()

    def warm_up(self, agent: Actor, keys: Key[Array, "seed"], *, chance: bool) -> Rollout:
        """No-op: there is no warm-up."""
        return self

    def collect(
        self, agent: Actor, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[Rollout, PreparedBatches]:
        """Act for ``length`` steps; all rows form one batch."""
        source, rows = self.live(agent, keys)
        return source, PreparedBatches(rows)

    def with_feedback(self, feedback: PyTree) -> Rollout:
        """No-op: learning does not change this source."""
        return self

    def live(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Rollout, Record]:
        """Act for ``length`` steps in every env."""
        if not self.world.traced:
            return self._live_on_host(agent, keys)

        def step(source: Rollout, time: Int[Array, ""]) -> tuple[Rollout, Record]:
            action, memory, extras, own = _choose_actions(
                agent, source.past, source.obs, keys, time
            )
            state, answer = self.world.step(source.state, action, own)
            source, row = _record_step(source, state, action, extras, answer)
            after = _next_past(agent, (memory, action, answer), keys, time)
            return dataclasses.replace(source, past=after), row

        times = jnp.arange(self.length, dtype=jnp.int32)
        source, rows = jax.lax.scan(step, self, times)
        return source, dataclasses.replace(_seed_major(rows, source.obs), start=self.past)

    def _live_on_host(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Rollout, Record]:
        """Act in a host world: one dispatch per step for the action; all steps are recorded
        together at the end."""
        state, obs, past, rows = self.state, self.obs, self.past, []
        for time in range(self.length):
            clock = cast(Array, np.int32(time))  # becomes an array inside the program
            action, memory, extras, own = _choose_compiled(agent, past, obs, keys, clock)
            action = jax.tree.map(np.asarray, action)
            state, answer = self.world.step(state, action, own)
            rows.append((action, extras, answer))
            obs = answer.obs
            if past is not None:
                past = _next_past_compiled(agent, (memory, action, answer), keys, clock)
        source = dataclasses.replace(self, state=state, past=past)
        source, record = _record_host_steps(
            source, jax.tree.map(lambda *parts: np.stack(parts), *rows)
        )
        return source, dataclasses.replace(record, start=self.past)


Choice = tuple[Action, PyTree, dict[str, Array], Key[Array, "seed"]]


def _choose_actions(
    agent: Actor, past: Past | None, obs: Obs, keys: Key[Array, "seed"], time: Int[Array, ""]
) -> Choice:
    """Return the agent's actions, its new memory, the extras to record, and the world's keys."""
    own = named.fold_each(keys, "act", time)
    return *acting.choose(agent, past, obs, own, True), named.fold_each(keys, "world", time)


@eqx.filter_jit
def _choose_compiled(
    agent: Actor, past: Past | None, obs: Obs, keys: Key[Array, "seed"], time: Int[Array, ""]
) -> Choice:
    return _choose_actions(agent, past, _finite(obs), keys, time)


def _next_past(
    agent: Actor,
    lived: tuple[PyTree, Action, Step],
    keys: Key[Array, "seed"],
    time: Int[Array, ""],
) -> Past | None:
    """Return the past for the next step, given (memory, action, the world's answer)."""
    if lived[0] is None:
        return None
    return acting.next_past(agent, *lived, named.fold_each(keys, "memory", time))


_next_past_compiled = eqx.filter_jit(_next_past)


@eqx.filter_jit
def _record_host_steps(
    source: Rollout, rows: tuple[Action, dict[str, Array], Step]
) -> tuple[Rollout, Record]:
    """Record steps that were taken on the host."""

    def step(source: Rollout, row: tuple[Action, dict[str, Array], Step]) -> Any:
        return _record_step(source, source.state, *row)

    source, booked = jax.lax.scan(step, source, rows)
    return source, _seed_major(booked, source.obs)


def _finite(obs: Obs) -> Obs:
    return jax.tree.map(lambda x: jnp.nan_to_num(x) if x.dtype.kind == "f" else x, obs)


@eqx.filter_jit
def _record_step(
    source: Rollout, state: PyTree, action: Action, extras: dict[str, Array], step: Step
) -> tuple[Rollout, Record]:
    """Record one step: make its row, and count the episodes that it ends."""
    channels, before = source.world.spec.channels, source.episode
    seen = (step.obs, step.channels)
    bad = _non_finite(seen, before.broken.shape) | ~jnp.isfinite(step.reward)
    broken = (before.broken & step.mask) | bad
    mask, last = jnp.logical_and(step.mask, ~broken), jnp.logical_or(step.last, broken)
    obs, counted = _finite(step.obs), step.counted
    totals = episode_totals.add_step(channels, before.totals, counted.reward, step.channels, mask)
    numbers = episode_totals.channel_values(channels, totals)
    reward = jnp.where(mask, step.reward, 0.0)
    discount = jnp.asarray(step.discount)
    extras = _record_extras(channels, extras, step, numbers, mask)
    extras |= {f"episode/{name}": jnp.where(mask, numbers[name], 0) for name in source.kept_totals}
    row = Record(source.obs, action, reward, discount, None, last, mask, extras)
    done = counted.last & mask
    failed = (bad & ~before.broken) | (step.last & ~step.mask)  # only a crash has last without mask
    ended = {
        name: source.tally.totals[name] + jnp.sum(x, 1, where=done).astype(jnp.float32)
        for name, x in episode_totals.split_columns(channels, numbers).items()
    }
    tally = Tally(
        ended,
        source.tally.episodes + jnp.sum(done, 1, dtype=jnp.int32),
        source.tally.invalid + jnp.sum(failed, 1, dtype=jnp.int32),
        source.tally.empty_choice,
    )
    if tally.empty_choice is not None:
        empty = find_empty_choice(source.world.spec, obs, last)
        tally = dataclasses.replace(tally, empty_choice=jnp.maximum(tally.empty_choice, empty))
    # the lives of an Atari game form one episode
    between = ~step.mask if step.score is None else broken
    again = episode_totals.reset_totals(channels, totals, counted.last | between)
    episode = Episode(again, broken & ~step.last)
    parts = {"state": state, "obs": obs, "episode": episode, "tally": tally}
    return dataclasses.replace(source, **parts), row


def _record_extras(
    channels: dict[str, Channel],
    extras: dict[str, Array],
    step: Step,
    numbers: Totals,
    mask: Bool[Array, "seed env"],
) -> dict[str, Array]:
    """Return a row's extras: the actor's, each channel's value in this step under its name, and the
    channel's value for the episode so far under ``episode/NAME``."""
    made = dict(extras)
    for name in channels:
        if name in extras:
            raise Mistake(
                f"{name!r} is both a channel of the environment and an extra of the algorithm; "
                "rename the channel"
            )
        for key, found in ((name, step.channels[name]), (f"episode/{name}", numbers[name])):
            value = jnp.asarray(found)
            wide = mask.reshape(mask.shape + (1,) * (value.ndim - mask.ndim))
            made[key] = jnp.where(wide, value, 0.0)
    return made


def _non_finite(answer: PyTree, shape: tuple[int, ...]) -> Bool[Array, "seed env"]:
    """Return which envs' answers contain NaN or infinity."""
    bad = jnp.zeros(shape, bool)
    for leaf in jax.tree.leaves(answer):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            bad = bad | ~jnp.isfinite(leaf).all(axis=tuple(range(2, leaf.ndim)))
    return bad


@eqx.filter_jit
def _seed_major(rows: Record, final_obs: Obs) -> Record:
    """Transpose (time, seed, env, ...) to (seed, time, env, ...), and add each row's next
    observation."""
    rows = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)
    next_obs = jax.tree.map(
        lambda obs, final: jnp.concatenate([obs[:, 1:], final[:, None]], 1), rows.obs, final_obs
    )
    return eqx.tree_at(lambda r: r.next_obs, rows, next_obs, is_leaf=lambda x: x is None)
