"""Samples of one's own past: the source of off-policy control."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from sterling import keys as named
from sterling.actor import Actor
from sterling.experience.chance import Chance
from sterling.experience.guided import Guided
from sterling.experience.priority import Priorities, SumTree
from sterling.experience.rollout import Rollout, Tally
from sterling.experience.room import check_room
from sterling.experience.storage import Ring
from sterling.experience.windows import transitions, uniform
from sterling.types import Mistake, Record, Signals, Transitions, World

RESUMED = 64  # rows to spare where a run's steps are fewer than the capacity: resuming takes some


class Replay(eqx.Module):
    """Keeps what ``source`` draws, and draws transitions ``(seed, update, batch, ...)`` from it.

    A drawn row is the start of a window of ``needs.n_step`` rows of one episode: ``reward`` is
    their sum discounted by ``needs.gamma``, ``next_obs`` the observation after them, and
    ``discount`` the product of the world's discounts times gamma^(m-1) for the m rows summed (m
    is smaller than n where the episode ends or is cut). So a learner multiplies ``discount`` by
    its own gamma once, whatever n is. Rows that are no experience are kept, because they hold
    final observations, and may be drawn: they have ``mask`` False.

    Rows are drawn uniformly, or with ``needs.priority`` > 0 in proportion to their last TD error
    (Schaul 2016, section 3.3, stratified as in its appendix B.2.1); then ``extras["weight"]``
    holds importance weights and :meth:`heed` expects ``samples["td_error"]``. Of the rows' extras
    the channels named in ``needs.keep`` are kept: as in a window's first row, or where they are
    summed over an episode, summed over the window as rewards are.
    """

    source: Rollout | Guided
    ring: Ring
    priorities: Priorities | None
    needs: Transitions = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        source: Rollout | Guided,
        needs: Transitions,
        stack: int,
        keys: Key[Array, "seed"],
        steps: int | None = None,
    ) -> Replay:
        """An empty replay of ``needs.capacity`` transitions a seed, or fewer where no more than
        ``steps`` will be taken: memory is not asked for what stays empty.

        ``source`` must draw ``needs.collect`` steps. ``stack`` frames make a picture (1: pictures
        are kept whole). Raises :class:`Mistake` if the capacity cannot hold even one draw, and if
        the memory that is free cannot hold what is kept.
        """
        world, envs = source.world, source.world.spec.envs
        rows = needs.capacity // envs
        least = source.length + needs.n_step + stack + 1
        if rows < least:
            raise Mistake(
                f"a replay capacity of {needs.capacity} is too small for {envs} envs; "
                f"ask for at least {least * envs}"
            )
        if steps is not None:
            rows = min(rows, _round(steps // envs + least + RESUMED))
        action, _ = eqx.filter_eval_shape(Chance(None, world).act, source.obs, keys, True)
        channels, shape = world.spec.channels, (world.seeds, envs)
        names = _checked(needs.keep, world)
        kept = {name: jnp.zeros((*shape, *channels[name].shape)) for name in names}
        summed = tuple(name for name in names if channels[name].reduce == "sum")
        ring = partial(Ring.create, rows, source.obs, action, stack, kept=kept, summed=summed)
        check_room(rows * envs, ring)
        priorities = None
        if needs.priority > 0.0:
            drawn = (needs.updates, needs.batch)
            priorities = Priorities.create(
                world.seeds, rows * envs, drawn, needs.priority, needs.correction
            )
        return cls(source, ring(), priorities, needs)

    @property
    def world(self) -> World:
        """The world that experience comes from."""
        return self.source.world

    @property
    def tally(self) -> Tally:
        """Episodes finished."""
        return self.source.tally

    @property
    def traced(self) -> bool:
        """Whether drawing may be compiled."""
        return self.source.traced

    def cleared(self) -> Replay:
        """With an empty tally."""
        return dataclasses.replace(self, source=self.source.cleared())

    def stored(self) -> Replay:
        """What of it is written."""
        return dataclasses.replace(self, source=self.source.stored())

    def restored(self, fresh: Replay) -> Replay:
        """The inverse of :meth:`stored`. A world that starts anew gives the newest row no
        successor: what is kept keeps its own, in a row between the old episodes and the new."""
        lived: Any = self.source
        source, kept = lived.restored(fresh.source), self._grown(fresh.ring.rows)
        if not self.world.exact:
            kept = _keep((kept[0].seam(source.obs), self.needs), kept)
        return Replay(source, *kept, self.needs)

    def shaped(self, rows: int) -> Replay:
        """Shapes and types of what is kept where there is room for ``rows``."""
        ring, priorities = self.ring.shaped(rows), self.priorities
        if priorities is not None:
            size = rows * self.world.spec.envs
            tree = eqx.filter_eval_shape(SumTree.zeros, self.world.seeds, size)
            priorities = dataclasses.replace(priorities, tree=tree)
        return dataclasses.replace(self, ring=ring, priorities=priorities)

    def _grown(self, rows: int) -> Kept:
        """What is kept, with room for at least ``rows``."""
        ring, priorities = self.ring, self.priorities
        if rows <= ring.rows:
            return ring, priorities
        if priorities is not None:
            seeds, envs = self.world.seeds, self.world.spec.envs
            each = priorities.tree.levels[0].reshape(seeds, -1)[:, : ring.rows * envs]
            each = ring.moved(each.reshape(seeds, ring.rows, envs), rows)
            tree = SumTree.of(each.reshape(seeds, -1))
            priorities = dataclasses.replace(priorities, tree=tree)
        return ring.grown(rows), priorities

    def close(self) -> None:
        """Release the world."""
        self.source.close()

    def draw(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Replay, Record]:
        """Take ``needs.collect`` steps, then sample ``needs.updates`` batches.

        Outside a compiled program the passed replay is used up: its memory is given to the new.
        """
        source, rows = self.source.draw(agent, keys)
        sample_keys = named.fold_each(keys, "sample")
        kept = (self.ring, self.priorities)
        kept, batch = _keep_and_sample((rows, self.needs, sample_keys), kept)
        return Replay(source, *kept, self.needs), batch

    def heed(self, signals: Signals) -> Replay:
        """Set the priorities of the rows drawn last by their TD errors."""
        if self.priorities is None:
            return self
        if "td_error" not in signals.samples:
            raise Mistake(
                "prioritised replay needs the learner's samples['td_error']; "
                "return it from learn, or set priority to 0"
            )
        learned = _learn_priorities(signals.samples["td_error"], self.priorities)
        return eqx.tree_at(lambda replay: replay.priorities, self, learned)

    def warm(self, keys: Key[Array, "seed"], agent: Actor, *, chance: bool = True) -> Replay:
        """Take ``needs.warmup`` steps (over all envs; rounded up) with uniformly random actions,
        which ``agent`` remembers as its own, or without ``chance`` as it acts itself.

        The passed replay is used up.
        """
        steps = -(-self.needs.warmup // self.world.spec.envs)
        if not steps:
            return self
        actor = Chance(agent, self.world) if chance else agent
        if self.world.traced:
            return _warm_compiled((actor, keys, steps), self)
        replay = self
        for time in range(steps):
            replay = _step(replay, actor, named.fold_each(keys, "warm", time))
        return replay


def as_large(tree: Any, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """The tree with its replay as large as that whose arrays have these ``shapes``, by their names
    in a checkpoint: it was written under another budget of steps."""
    rows = next((shape[1] for name, shape in shapes.items() if name.endswith("ring/words")), 0)

    def kept(each: Any) -> bool:
        return isinstance(each, Replay)

    return jax.tree.map(lambda x: x.shaped(rows) if kept(x) else x, tree, is_leaf=kept)


@eqx.filter_jit(donate="all-except-first")
def _warm_compiled(how: tuple[Actor, Key[Array, "seed"], int], replay: Replay) -> Replay:
    actor, keys, steps = how

    def step(replay: Replay, time: Int[Array, ""]) -> tuple[Replay, None]:
        return _step(replay, actor, named.fold_each(keys, "warm", time)), None

    return jax.lax.scan(step, replay, jnp.arange(steps, dtype=jnp.int32))[0]


def _step(replay: Replay, actor: Actor, keys: Key[Array, "seed"]) -> Replay:
    """One step of every env, kept."""
    once, rows = replay.source.lasting(1).draw(actor, keys)
    source = once.lasting(replay.source.length)
    kept = _keep((rows, replay.needs), (replay.ring, replay.priorities))
    return Replay(source, *kept, replay.needs)


def _checked(names: tuple[str, ...], world: World) -> tuple[str, ...]:
    """The names; Mistake where one is not a channel of the world."""
    for name in names:
        if name not in world.spec.channels:
            known = ", ".join(world.spec.channels) or "none"
            raise Mistake(
                f"keep names {name!r}, the environment reports {known}; keep one of those"
            )
    return names


Kept = tuple[Ring, Priorities | None]


def _round(rows: int) -> int:
    """The next power of two: runs of many lengths share programs."""
    return 1 << (rows - 1).bit_length()


@eqx.filter_jit(donate="all-except-first")
def _keep_and_sample(
    new: tuple[Record, Transitions, Key[Array, "seed"]], kept: Kept
) -> tuple[Kept, Record]:
    rows, needs, keys = new
    ring, priorities = _add(rows, needs, kept)
    shape = (needs.updates, needs.batch)
    if priorities is None:
        window = needs.n_step + needs.next_action  # of the newest row the next is not known yet
        row, env, valid = uniform(ring, window, shape, keys)
        return (ring, None), transitions(ring, needs, (row, env), valid, extras={})
    share = jax.vmap(lambda key: jax.random.uniform(key, shape))(keys)
    strata = jnp.arange(needs.batch, dtype=jnp.float32).reshape(1, 1, -1)
    share = (strata + share) / needs.batch
    priorities, place, valid, weight = priorities.draw(share)
    envs = ring.words.shape[2]
    row, env = place // envs, place % envs
    batch = transitions(ring, needs, (row, env), valid, extras={"weight": weight})
    return (ring, priorities), batch


@eqx.filter_jit(donate="all-except-first")
def _keep(new: tuple[Record, Transitions], kept: Kept) -> Kept:
    return _add(*new, kept)


@eqx.filter_jit(donate="all-except-first")
def _learn_priorities(
    error: Float[Array, "seed update batch"], priorities: Priorities
) -> Priorities:
    return priorities.learn(error)


def _add(new: Record, needs: Transitions, kept: Kept) -> Kept:
    """Add rows; those whose window is now complete may be drawn with the largest priority."""
    ring, priorities = kept[0].insert(new), kept[1]
    if priorities is None:
        return ring, None
    ready = new.reward.shape[1]
    before, after = ready + needs.n_step - 1, ring.stack
    offset = jnp.arange(-before, after, dtype=jnp.int32)
    row = jnp.mod(ring.head + offset, ring.rows)
    seeds, envs = ring.words.shape[0], ring.words.shape[2]
    row, env = (x.reshape(-1) for x in jnp.meshgrid(row, jnp.arange(envs, dtype=jnp.int32)))
    shape = (seeds, row.size)
    mask = ring.mask(jnp.broadcast_to(row[None], shape), jnp.broadcast_to(env[None], shape))
    complete = jnp.tile(offset < ready - before, envs)
    return ring, priorities.admit(row * envs + env, mask & complete[None])
