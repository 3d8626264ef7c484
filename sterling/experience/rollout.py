"""Fresh on-policy trajectories: the source every other source of control experience builds on."""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from sterling import keys as named
from sterling.actor import Actor, Past
from sterling.channels import Channel, columns
from sterling.experience import acting, episode_totals
from sterling.experience.draws import Ready, Unvisited
from sterling.experience.episode_totals import Totals
from sterling.types import Action, Mistake, Obs, Record, Step, World


class Tally(eqx.Module):
    """Sums over the episodes that finished since the tally was last cleared, per seed."""

    totals: dict[str, Float[Array, "seed"]]  # by column: "return", "length", those of channels
    episodes: Int[Array, "seed"]
    invalid: Int[Array, "seed"]  # episodes cut because the world crashed or answered NaN

    returns = property(lambda self: self.totals["return"], doc="The sum of all returns.")
    lengths = property(lambda self: self.totals["length"], doc="The sum of all lengths.")

    @classmethod
    def empty(cls, seeds: int, channels: dict[str, Channel] | None = None) -> Tally:
        """Nothing counted yet; made without a program, for every row of metrics asks for it."""
        names = ("return", "length", *columns(channels or {}))
        none, zero = (jnp.asarray(np.zeros(seeds, kind)) for kind in (np.int32, np.float32))
        return cls({name: zero.copy() for name in names}, none, none.copy())


class Episode(eqx.Module):
    """The episode each env is in."""

    totals: Totals  # by channel
    broken: Bool[Array, "seed env"]  # NaN seen: masked until the world resets

    length = property(lambda self: self.totals["length"], doc="Steps so far, (seed, env).")


UNSAVED = ("state", "obs", "episode", "past")  # where a world's state cannot be saved


class Rollout(Unvisited, eqx.Module):
    """Lives ``length`` steps of every env of ``world`` under the current policy, as a
    :class:`Record` with leaves ``(seed, time, env, ...)``."""

    world: World = eqx.field(static=True)
    length: int = eqx.field(static=True)
    state: PyTree  # the world's own
    obs: Obs  # what the agent sees now
    episode: Episode
    tally: Tally
    past: Past | None = None  # of an actor that remembers

    @classmethod
    def create(
        cls, world: World, length: int, keys: Key[Array, "seed"], actor: Actor | None = None
    ) -> Rollout:
        """Reset the world. ``actor``, who will act, says what is remembered (None: nothing)."""
        state, obs = world.reset(named.fold_each(keys, "reset"))
        obs = jax.tree.map(lambda leaf: leaf.copy(), obs)  # programs take over state and obs each
        shape = (world.seeds, world.spec.envs)
        channels = world.spec.channels
        episode = Episode(episode_totals.begin(channels, shape), jnp.zeros(shape, bool))
        start = named.fold_each(keys, "memory")
        space = world.spec.action
        begun = None if actor is None else acting.begin(actor, space, shape, start)
        return cls(world, length, state, obs, episode, Tally.empty(world.seeds, channels), begun)

    @property
    def traced(self) -> bool:
        """Whether collecting may be compiled."""
        return self.world.traced

    @property
    def worlds(self) -> tuple[World, ...]:
        """The world that experience comes from."""
        return (self.world,)

    def lasting(self, length: int) -> Rollout:
        """The same, living so many steps at a time."""
        return dataclasses.replace(self, length=length)

    def cleared(self) -> Rollout:
        """With an empty tally."""
        return dataclasses.replace(
            self, tally=Tally.empty(self.world.seeds, self.world.spec.channels)
        )

    def stored(self) -> Rollout:
        """What of it is written: not the state of a world that cannot be saved (EnvPool's
        simulators, a Python process); such a world starts fresh episodes on resuming."""
        if self.world.exact:
            return self
        nothing = (None,) * len(UNSAVED)
        return eqx.tree_at(attrgetter(*UNSAVED), self, nothing, is_leaf=lambda x: x is None)

    def restored(self, fresh: Rollout) -> Rollout:
        """The inverse of :meth:`stored`: with the world's state of ``fresh``."""
        if self.world.exact:
            return self
        return dataclasses.replace(self, **{name: getattr(fresh, name) for name in UNSAVED})

    def close(self) -> None:
        """Release the world."""
        self.world.close()

    def warm(self, agent: Actor, keys: Key[Array, "seed"], *, chance: bool) -> Rollout:
        """Nothing is lived before the first update."""
        return self

    def collect(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Rollout, Ready]:
        """Act for ``length`` steps: one batch is all of them."""
        source, rows = self.live(agent, keys)
        return source, Ready(rows)

    def hearing(self, heard: PyTree) -> Rollout:
        """Fresh experience is what it is."""
        return self

    def live(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Rollout, Record]:
        """Act for ``length`` steps."""
        if not self.world.traced:
            return self._live_on_host(agent, keys)

        def step(source: Rollout, time: Int[Array, ""]) -> tuple[Rollout, Record]:
            action, memory, extras, own = _chosen(agent, source.past, source.obs, keys, time)
            state, answer = self.world.step(source.state, action, own)
            source, row = _record(source, state, action, extras, answer)
            after = _answered(agent, (memory, action, answer), keys, time)
            return dataclasses.replace(source, past=after), row

        times = jnp.arange(self.length, dtype=jnp.int32)
        source, rows = jax.lax.scan(step, self, times)
        return source, dataclasses.replace(_by_seed(rows, source.obs), start=self.past)

    def _live_on_host(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Rollout, Record]:
        """One dispatch a step, for the action; the steps are booked together at the end."""
        state, obs, past, rows = self.state, self.obs, self.past, []
        for time in range(self.length):
            clock = cast(Array, np.int32(time))  # an array once inside the program
            action, memory, extras, own = _choose(agent, past, obs, keys, clock)
            action = jax.tree.map(np.asarray, action)
            state, answer = self.world.step(state, action, own)
            rows.append((action, extras, answer))
            obs = answer.obs
            if past is not None:
                past = _after(agent, (memory, action, answer), keys, clock)
        source = dataclasses.replace(self, state=state, past=past)
        source, record = _book(source, jax.tree.map(lambda *parts: np.stack(parts), *rows))
        return source, dataclasses.replace(record, start=self.past)


Chosen = tuple[Action, PyTree, dict[str, Array], Key[Array, "seed"]]


def _chosen(
    agent: Actor, past: Past | None, obs: Obs, keys: Key[Array, "seed"], time: Int[Array, ""]
) -> Chosen:
    """What the agent does and remembers, what is recorded, and the world's keys."""
    own = named.fold_each(keys, "act", time)
    return *acting.choose(agent, past, obs, own, True), named.fold_each(keys, "world", time)


@eqx.filter_jit
def _choose(
    agent: Actor, past: Past | None, obs: Obs, keys: Key[Array, "seed"], time: Int[Array, ""]
) -> Chosen:
    return _chosen(agent, past, _finite(obs), keys, time)


def _answered(
    agent: Actor,
    lived: tuple[PyTree, Action, Step],
    keys: Key[Array, "seed"],
    time: Int[Array, ""],
) -> Past | None:
    """The past of the next step, after this memory, action and answer."""
    if lived[0] is None:
        return None
    return acting.answered(agent, *lived, named.fold_each(keys, "memory", time))


_after = eqx.filter_jit(_answered)


@eqx.filter_jit
def _book(source: Rollout, rows: tuple[Action, dict[str, Array], Step]) -> tuple[Rollout, Record]:
    """Book steps taken on the host."""

    def step(source: Rollout, row: tuple[Action, dict[str, Array], Step]) -> Any:
        return _record(source, source.state, *row)

    source, booked = jax.lax.scan(step, source, rows)
    return source, _by_seed(booked, source.obs)


def _finite(obs: Obs) -> Obs:
    return jax.tree.map(lambda x: jnp.nan_to_num(x) if x.dtype.kind == "f" else x, obs)


@eqx.filter_jit
def _record(
    source: Rollout, state: PyTree, action: Action, extras: dict[str, Array], step: Step
) -> tuple[Rollout, Record]:
    """Book one step: the row it makes, and the episodes it ends."""
    channels, before = source.world.spec.channels, source.episode
    seen = (step.obs, step.channels)
    bad = _non_finite(seen, before.broken.shape) | ~jnp.isfinite(step.reward)
    broken = (before.broken & step.mask) | bad
    mask, last = jnp.logical_and(step.mask, ~broken), jnp.logical_or(step.last, broken)
    obs, counted = _finite(step.obs), step.counted
    totals = episode_totals.add(channels, before.totals, counted.reward, step.channels, mask)
    numbers = episode_totals.numbers(channels, totals)
    reward = jnp.where(mask, step.reward, 0.0)
    discount = jnp.asarray(step.discount)
    extras = _reported(channels, extras, step, numbers, mask)
    row = Record(source.obs, action, reward, discount, None, last, mask, extras)
    done = counted.last & mask
    failed = (bad & ~before.broken) | (step.last & ~step.mask)  # only a crash is both
    ended = {
        name: source.tally.totals[name] + jnp.sum(x, 1, where=done).astype(jnp.float32)
        for name, x in episode_totals.by_column(channels, numbers).items()
    }
    tally = Tally(
        ended,
        source.tally.episodes + jnp.sum(done, 1, dtype=jnp.int32),
        source.tally.invalid + jnp.sum(failed, 1, dtype=jnp.int32),
    )
    between = ~step.mask if step.score is None else broken  # a game's lives are counted together
    again = episode_totals.begin_again(channels, totals, counted.last | between)
    episode = Episode(again, broken & ~step.last)
    parts = {"state": state, "obs": obs, "episode": episode, "tally": tally}
    return dataclasses.replace(source, **parts), row


def _reported(
    channels: dict[str, Channel],
    extras: dict[str, Array],
    step: Step,
    numbers: Totals,
    mask: Bool[Array, "seed env"],
) -> dict[str, Array]:
    """What is recorded beside a row: the actor's extras, each channel's value in this step under
    its name, and what the episode has come to with it under ``episode/NAME``."""
    made = dict(extras)
    for name in channels:
        if name in extras:
            raise Mistake(
                f"the world reports a channel {name!r}, and the algorithm records {name!r} itself; "
                "give the channel another name"
            )
        for key, found in ((name, step.channels[name]), (f"episode/{name}", numbers[name])):
            value = jnp.asarray(found)
            wide = mask.reshape(mask.shape + (1,) * (value.ndim - mask.ndim))
            made[key] = jnp.where(wide, value, 0.0)
    return made


def _non_finite(answer: PyTree, shape: tuple[int, ...]) -> Bool[Array, "seed env"]:
    """Which envs' answers hold NaN or infinity."""
    bad = jnp.zeros(shape, bool)
    for leaf in jax.tree.leaves(answer):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            bad = bad | ~jnp.isfinite(leaf).all(axis=tuple(range(2, leaf.ndim)))
    return bad


@eqx.filter_jit
def _by_seed(rows: Record, final_obs: Obs) -> Record:
    """(time, seed, env, ...) -> (seed, time, env, ...), with each row's successor."""
    rows = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)
    next_obs = jax.tree.map(
        lambda obs, final: jnp.concatenate([obs[:, 1:], final[:, None]], 1), rows.obs, final_obs
    )
    return eqx.tree_at(lambda r: r.next_obs, rows, next_obs, is_leaf=lambda x: x is None)
