"""The replay buffer: the source of off-policy learning."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from sterling import random_keys as named
from sterling.actor import Actor
from sterling.experience import acting
from sterling.experience.batch_draws import Due, SourceWrapper, every_feed
from sterling.experience.replay.episode_index import EpisodeIndex
from sterling.experience.replay.kept_extras import (
    empty_extras,
    keeps_actor_extras,
    past_form,
    recording,
    with_kept_totals,
    write_extras,
)
from sterling.experience.replay.priority_tree import (
    Priorities,
    SumTree,
    prioritised_feed,
    priority_window,
)
from sterling.experience.replay.replay_sampling import ReplayDraws, fresh_rows, start_rows
from sterling.experience.replay.returns_to_go import ReturnsToGo
from sterling.experience.replay.ring_buffer import Place, Ring
from sterling.experience.replay.ring_tasks import RingTasks
from sterling.experience.replay.window_relabelling import Relabeller
from sterling.experience.rollouts.guided_rollout import GuidedRollout
from sterling.experience.rollouts.random_actions import RandomActor
from sterling.experience.rollouts.rollout import Rollout
from sterling.experience.rollouts.rollout_wrapper import Around
from sterling.experience.store_memory_check import check_memory
from sterling.experience.stored_rows import RowsToStore
from sterling.needs.feed import PAD
from sterling.types import AnyNeeds, Mistake, Record

SPARE_ROWS = 64  # for resuming, if a run's steps are fewer than the capacity


class Replay(SourceWrapper, eqx.Module):
    """Stores what ``source`` collects; batches are drawn from it as ``needs`` asks
    (replay_sampling.py).

    Masked rows are stored too, because they hold final observations. Of the rows' extras those
    named in ``needs.keep`` are stored: the actor's, the world's channels and their totals, and
    with "memory" the past before each row.
    """

    source: Rollout | GuidedRollout | Around
    ring: Ring
    priorities: Priorities | None
    needs: AnyNeeds = eqx.field(static=True)
    relabel: Relabeller | None = None  # relabels windows whenever they are drawn
    past_form: Any = eqx.field(static=True, default=None)  # structure of the pasts that are kept
    episodes: EpisodeIndex | None = None  # which episode each row belongs to, for later rows
    to_go: ReturnsToGo | None = None  # each row's return to its episode's end
    tasks: RingTasks | None = None  # which rows are of the same task

    @classmethod
    def create(
        cls,
        source: Rollout | GuidedRollout | Around,
        needs: AnyNeeds,
        stack: int,
        keys: Key[Array, "seed"],
        steps: int | None = None,
        *,
        actor: Actor | None = None,
        relabel: Callable[[Ring], Relabeller] | None = None,
    ) -> Replay:
        """Create an empty buffer of ``needs.capacity`` transitions per seed, or fewer if the run
        takes at most ``steps`` steps: no memory is allocated for what stays empty.

        ``source`` must collect ``needs.collect`` steps at a time. ``stack`` frames make one picture
        (1: pictures are stored whole). ``actor`` is traced for the shapes of its extras;
        ``relabel`` creates the relabeller of an empty ring. Raises :class:`Mistake` if the capacity
        cannot hold even one window, or if the free memory cannot hold the buffer.
        """
        world, envs = source.world, source.world.spec.envs
        rows = needs.capacity // envs
        least = source.length + max(feed.window for feed in needs.feeds) + stack + 1
        if rows < least:
            raise Mistake(
                f"a replay capacity of {needs.capacity} is too small for {envs} envs; "
                f"set capacity to at least {least * envs}"
            )
        if steps is not None:
            most = steps // envs + least + SPARE_ROWS
            # a power of two, so that runs of different lengths share programs
            rows = min(rows, 1 << (most - 1).bit_length())
        action, _ = eqx.filter_eval_shape(RandomActor(None, world).act, source.obs, keys, True)
        form = past_form(needs, actor, world, keys)
        source, channels = with_kept_totals(source, needs), world.spec.channels
        kept = empty_extras(needs, source, actor, keys)
        summed = tuple(x for x in kept if x in channels and channels[x].reduce == "sum")
        team = world.spec.agents is not None
        known: dict[str, Any] = {"kept": kept, "summed": summed, "team": team}
        ring = partial(Ring.create, rows, source.obs, action, stack, **known)
        check_memory(rows * envs, lambda: _with_relabeller(ring(), relabel))
        priorities, by = None, prioritised_feed(needs)
        if by is not None:
            priorities = Priorities.create(world.seeds, rows * envs, by.priority, by.correction)
        empty, change = _with_relabeller(ring(), relabel)
        indexed = any(feed.own_beside or feed.edge == PAD for feed in needs.feeds)
        episodes = EpisodeIndex.create(empty) if indexed else None
        found = ReturnsToGo.create(empty, needs), RingTasks.create(empty, needs)
        return cls(source, empty, priorities, needs, change, form, episodes, *found)

    world = property(lambda self: self.source.world, doc="The world that experience comes from.")
    summed = property(lambda self: self.ring.summed, doc="Extras that n-step returns sum.")

    def from_checkpoint(self, fresh: Replay) -> Replay:
        """Return the saved buffer, completed from ``fresh``.

        If the world restarts, the newest row would get a wrong successor; it keeps its own, in a
        masked row between the old episodes and the new ones.
        """
        inner: Any = self.source
        source, kept = inner.from_checkpoint(fresh.source), self._with_capacity(fresh.ring.rows)
        if not self.world.exact:
            boundary = kept[0].boundary_row(source.obs)
            kept = _insert_rows((boundary, priority_window(self.needs)), kept)
        return self._with_parts(source, kept)

    def shapes_with_capacity(self, rows: int) -> Replay:
        """Return the buffer's shapes and dtypes at a capacity of ``rows`` rows."""
        ring, priorities = self.ring.shapes_with_capacity(rows), self.priorities
        followers: Any = self.kept[2:]
        followers = (x and x.shapes_with_capacity(rows) for x in followers)
        if priorities is not None:
            size = rows * self.world.spec.envs
            tree = eqx.filter_eval_shape(SumTree.zeros, self.world.seeds, size)
            priorities = dataclasses.replace(priorities, tree=tree)
        return self._with_parts(self.source, (ring, priorities, *followers))

    def _with_parts(self, source: Any, kept: ReplayParts) -> Replay:
        """Return the buffer with another source and new stored parts."""
        names = ("ring", "priorities", "relabel", "episodes", "to_go", "tasks")
        parts: Any = dict(zip(names, kept, strict=True))
        return dataclasses.replace(self, source=source, **parts)

    @property
    def kept(self) -> ReplayParts:
        """Return the parts that rows are added to."""
        followers = self.relabel, self.episodes, self.to_go, self.tasks
        return self.ring, self.priorities, *followers

    def _with_capacity(self, rows: int) -> ReplayParts:
        """Return the stored parts, with a capacity of at least ``rows`` rows."""
        ring, priorities, *_ = self.kept
        followers: Any = self.kept[2:]
        if rows <= ring.rows:
            return self.kept
        if priorities is not None:
            seeds, envs = self.world.seeds, self.world.spec.envs
            each = priorities.tree.levels[0].reshape(seeds, -1)[:, : ring.rows * envs]
            each = ring.oldest_first(each.reshape(seeds, ring.rows, envs), rows)
            tree = SumTree.from_numbers(each.reshape(seeds, -1))
            priorities = dataclasses.replace(priorities, tree=tree)
        change, *rest = (x and x.with_capacity(ring, rows) for x in followers)
        return ring.with_capacity(rows), priorities, change, *rest

    def collect(
        self, agent: Actor, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[Replay, ReplayDraws]:
        """Take ``needs.collect`` steps, and store them.

        Outside a compiled program this donates the buffer's memory: do not use the old one again.
        """
        source, rows = self.source.live(recording(agent, self.needs), keys)
        kept = _insert_rows((rows, priority_window(self.needs)), self.kept)
        kept = *kept[:5], None if kept[5] is None else kept[5].sorted_anew(kept[0])
        fresh = fresh_rows(kept[0], rows, self.needs)
        own: Any = kept[3:]
        draws = ReplayDraws(*kept[:2], self.needs, fresh, kept[2], self.past_form, *own)
        return self._with_parts(source, kept), draws

    def starts(
        self, count: int, keys: Key[Array, "seed"]
    ) -> tuple[Record, Bool[Array, "seed count"]]:
        """Return rows, with what is kept of them, to roll a model out from, and which of them are
        experience."""
        return start_rows(self.ring, self.past_form, (count, bool(self.needs.keep)), keys)

    def with_feedback(self, feedback: Priorities | None) -> Replay:
        """Return the buffer with the priorities that updates changed."""
        return dataclasses.replace(self, priorities=feedback)

    def with_stored_rows(self, stored: dict[str, RowsToStore]) -> Replay:
        """Return the buffer with the kept extras that updates changed."""
        ring = write_extras(self.ring, self.needs, self.past_form, stored)
        return dataclasses.replace(self, ring=ring)

    def warm_up(self, agent: Actor, keys: Key[Array, "seed"], *, chance: bool = True) -> Replay:
        """Take ``needs.warmup`` steps (over all envs; rounded up) with uniformly random actions or,
        without ``chance``, with the agent's own.

        In both cases ``agent`` updates its memory with the actions taken. The old buffer must not
        be used again.
        """
        steps = -(-self.needs.warmup // self.world.spec.envs)
        if not steps:
            return self
        # a plan would only be thrown away
        actor = recording(acting.without_planning(agent) if chance else agent, self.needs)
        if chance:
            recorded = keeps_actor_extras(self.needs, self.world)
            actor = RandomActor(actor, self.world, recorded)
        if self.world.traced:
            return _warm_compiled((actor, keys, steps), self)
        replay = self
        for time in range(steps):
            replay = _collect_step(replay, actor, named.fold_each(keys, "warm", time))
        return replay


def resize_replay(tree: Any, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Resize the replay buffer in ``tree`` to the capacity in a checkpoint, whose arrays have these
    ``shapes`` by name: it may have been written with another step budget."""
    rows = next((shape[1] for name, shape in shapes.items() if name.endswith("ring/words")), 0)
    return jax.tree.map(
        lambda x: x.shapes_with_capacity(rows) if _is_replay(x) else x, tree, is_leaf=_is_replay
    )


def _is_replay(each: Any) -> bool:
    return isinstance(each, Replay)


@eqx.filter_jit(donate="all-except-first")
def _warm_compiled(how: tuple[Actor, Key[Array, "seed"], int], replay: Replay) -> Replay:
    actor, keys, steps = how

    def step(replay: Replay, time: Int[Array, ""]) -> tuple[Replay, None]:
        return _collect_step(replay, actor, named.fold_each(keys, "warm", time)), None

    return jax.lax.scan(step, replay, jnp.arange(steps, dtype=jnp.int32))[0]


def _collect_step(replay: Replay, actor: Actor, keys: Key[Array, "seed"]) -> Replay:
    """Take one step in every env, and store it."""
    once, rows = replay.source.with_length(1).live(actor, keys)
    source = once.with_length(replay.source.length)
    return replay._with_parts(
        source, _insert_rows((rows, priority_window(replay.needs)), replay.kept)
    )


def _with_relabeller(
    ring: Ring, relabel: Callable[[Ring], Relabeller] | None
) -> tuple[Ring, Relabeller | None]:
    """Return the ring, and its relabeller if there is one."""
    return ring, None if relabel is None else relabel(ring)


ReplayParts = tuple[
    Ring,
    Priorities | None,
    Relabeller | None,
    EpisodeIndex | None,
    ReturnsToGo | None,
    RingTasks | None,
]


@eqx.filter_jit(donate="all-except-first")
def _insert_rows(new: tuple[Record, int], kept: ReplayParts) -> ReplayParts:
    """Add rows; those whose window is now complete get the largest priority."""
    rows, window = new
    before, priorities, *_ = kept
    followers: Any = kept[2:]
    ring = before.insert(rows)
    change, *others = (x and x.insert(before, rows) for x in followers)
    if priorities is None:
        return ring, None, change, *others
    ready = rows.reward.shape[1]
    back, after = ready + window - 1, ring.stack
    offset = jnp.arange(-back, after, dtype=jnp.int32)
    row = jnp.mod(ring.head + offset, ring.rows)
    seeds, envs = ring.words.shape[0], ring.words.shape[2]
    row, env = (x.reshape(-1) for x in jnp.meshgrid(row, jnp.arange(envs, dtype=jnp.int32)))
    shape = (seeds, row.size)
    mask = ring.mask(Place.of_all(jnp.broadcast_to(row, shape), jnp.broadcast_to(env, shape)))
    complete = jnp.tile(offset < ready - back, envs)
    admitted = priorities.admit(row * envs + env, mask & complete[None])
    return ring, admitted, change, *others
