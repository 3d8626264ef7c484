"""What was lived, kept to be learned from again and again: the source of off-policy control."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from sterling import keys as named
from sterling.actor import Actor
from sterling.experience import acting
from sterling.experience.chance import Chance
from sterling.experience.draws import Wrapped
from sterling.experience.guided import Guided
from sterling.experience.priority import Priorities, SumTree
from sterling.experience.relabelling import Relabel
from sterling.experience.replay_draws import ReplayDraws
from sterling.experience.rollout import Rollout
from sterling.experience.room import check_room
from sterling.experience.stepwise import Around
from sterling.experience.storage import Place, Ring
from sterling.needs import FRESH
from sterling.types import AnyNeeds, Feed, Mistake, Record, World

RESUMED = 64  # rows to spare where a run's steps are fewer than the capacity: resuming takes some


class Replay(Wrapped, eqx.Module):
    """Keeps what ``source`` lives, to be drawn from as ``needs`` says (replay_draws.py).

    Rows that are no experience are kept, because they hold final observations. Of the rows' extras
    those named in ``needs.keep`` are kept: the actor's, and channels of the world.
    """

    source: Rollout | Guided | Around
    ring: Ring
    priorities: Priorities | None
    needs: AnyNeeds = eqx.field(static=True)
    relabel: Relabel | None = None  # a change of windows whenever they are drawn

    @classmethod
    def create(
        cls,
        source: Rollout | Guided | Around,
        needs: AnyNeeds,
        stack: int,
        keys: Key[Array, "seed"],
        steps: int | None = None,
        *,
        actor: Actor | None = None,
        relabel: Callable[[Ring], Relabel] | None = None,
    ) -> Replay:
        """An empty replay of ``needs.capacity`` transitions a seed, or fewer where no more than
        ``steps`` will be taken: memory is not asked for what stays empty.

        ``source`` must live ``needs.collect`` steps. ``stack`` frames make a picture (1: pictures
        are kept whole). ``actor`` is asked what of its extras is like that is kept; ``relabel``
        makes what changes windows, for a ring that is empty. Raises
        :class:`Mistake` if the capacity cannot hold even one draw, and if the memory that is free
        cannot hold what is kept.
        """
        world, envs = source.world, source.world.spec.envs
        rows = needs.capacity // envs
        least = source.length + max(feed.window for feed in needs.feeds) + stack + 1
        if rows < least:
            raise Mistake(
                f"a replay capacity of {needs.capacity} is too small for {envs} envs; "
                f"ask for at least {least * envs}"
            )
        if steps is not None:
            rows = min(rows, _round(steps // envs + least + RESUMED))
        action, _ = eqx.filter_eval_shape(Chance(None, world).act, source.obs, keys, True)
        kept = _kept(needs.keep, source, actor, keys)
        channels = world.spec.channels
        summed = tuple(x for x in kept if x in channels and channels[x].reduce == "sum")
        ring = partial(Ring.create, rows, source.obs, action, stack, kept=kept, summed=summed)
        check_room(rows * envs, lambda: _beside(ring(), relabel))
        priorities, by = None, _prioritised(needs)
        if by is not None:
            size = rows * envs
            priorities = Priorities.create(world.seeds, size, by.priority, by.correction)
        empty, change = _beside(ring(), relabel)
        return cls(source, empty, priorities, needs, change)

    @property
    def world(self) -> World:
        """The world that experience comes from."""
        return self.source.world

    def restored(self, fresh: Replay) -> Replay:
        """The inverse of :meth:`stored`. A world that starts anew gives the newest row no
        successor: what is kept keeps its own, in a row between the old episodes and the new."""
        lived: Any = self.source
        source, kept = lived.restored(fresh.source), self._grown(fresh.ring.rows)
        if not self.world.exact:
            kept = _keep((kept[0].seam(source.obs), _window(self.needs)), kept)
        return self._of(source, kept)

    def shaped(self, rows: int) -> Replay:
        """Shapes and types of what is kept where there is room for ``rows``."""
        ring, priorities, change = self.ring.shaped(rows), self.priorities, self.relabel
        change = None if change is None else change.shaped(rows)
        if priorities is not None:
            size = rows * self.world.spec.envs
            tree = eqx.filter_eval_shape(SumTree.zeros, self.world.seeds, size)
            priorities = dataclasses.replace(priorities, tree=tree)
        return self._of(self.source, (ring, priorities, change))

    def _of(self, source: Any, kept: Kept) -> Replay:
        """With another source, and what is kept now."""
        ring, priorities, change = kept
        parts = {"source": source, "ring": ring, "priorities": priorities, "relabel": change}
        return dataclasses.replace(self, **parts)

    @property
    def kept(self) -> Kept:
        """What rows are added to."""
        return self.ring, self.priorities, self.relabel

    def _grown(self, rows: int) -> Kept:
        """What is kept, with room for at least ``rows``."""
        ring, priorities, change = self.kept
        if rows <= ring.rows:
            return self.kept
        if priorities is not None:
            seeds, envs = self.world.seeds, self.world.spec.envs
            each = priorities.tree.levels[0].reshape(seeds, -1)[:, : ring.rows * envs]
            each = ring.moved(each.reshape(seeds, ring.rows, envs), rows)
            tree = SumTree.of(each.reshape(seeds, -1))
            priorities = dataclasses.replace(priorities, tree=tree)
        change = None if change is None else change.grown(ring, rows)
        return ring.grown(rows), priorities, change

    def collect(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Replay, ReplayDraws]:
        """Take ``needs.collect`` steps, and keep them.

        Outside a compiled program the passed replay is used up: its memory is given to the new.
        """
        source, rows = self.source.live(agent, keys)
        kept = _keep((rows, _window(self.needs)), self.kept)
        fresh = rows if self.needs.of(FRESH) else None
        ring, priorities, change = kept
        return self._of(source, kept), ReplayDraws(ring, priorities, self.needs, fresh, change)

    def hearing(self, heard: Priorities | None) -> Replay:
        """With the priorities as updates left them."""
        return dataclasses.replace(self, priorities=heard)

    def warm(self, agent: Actor, keys: Key[Array, "seed"], *, chance: bool = True) -> Replay:
        """Take ``needs.warmup`` steps (over all envs; rounded up) with uniformly random actions,
        which ``agent`` remembers as its own, or without ``chance`` as it acts itself.

        The passed replay is used up.
        """
        steps = -(-self.needs.warmup // self.world.spec.envs)
        if not steps:
            return self
        actor = Chance(agent, self.world, _is_asked(self.needs, self.world)) if chance else agent
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
    return jax.tree.map(lambda x: x.shaped(rows) if _is_kept(x) else x, tree, is_leaf=_is_kept)


def as_large_as(held: Any, tree: Any) -> Any:
    """The tree with its replay as large as the one in ``held``."""
    kept = [each for each in jax.tree.leaves(held, is_leaf=_is_kept) if _is_kept(each)]
    return as_large(tree, {"ring/words": kept[0].ring.words.shape}) if kept else tree


def _is_kept(each: Any) -> bool:
    return isinstance(each, Replay)


@eqx.filter_jit(donate="all-except-first")
def _warm_compiled(how: tuple[Actor, Key[Array, "seed"], int], replay: Replay) -> Replay:
    actor, keys, steps = how

    def step(replay: Replay, time: Int[Array, ""]) -> tuple[Replay, None]:
        return _step(replay, actor, named.fold_each(keys, "warm", time)), None

    return jax.lax.scan(step, replay, jnp.arange(steps, dtype=jnp.int32))[0]


def _step(replay: Replay, actor: Actor, keys: Key[Array, "seed"]) -> Replay:
    """One step of every env, kept."""
    once, rows = replay.source.lasting(1).live(actor, keys)
    source = once.lasting(replay.source.length)
    return replay._of(source, _keep((rows, _window(replay.needs)), replay.kept))


def _beside(ring: Ring, relabel: Callable[[Ring], Relabel] | None) -> tuple[Ring, Relabel | None]:
    """The ring, and what changes its windows."""
    return ring, None if relabel is None else relabel(ring)


def _is_asked(needs: AnyNeeds, world: World) -> bool:
    """Whether something is kept that only the actor can say."""
    return any(name not in world.spec.channels for name in needs.keep)


def _kept(
    names: tuple[str, ...],
    source: Rollout | Guided | Around,
    actor: Actor | None,
    keys: Key[Array, "seed"],
) -> dict[str, Array]:
    """Zeros like what is kept of the rows' extras; Mistake where nobody records it."""
    if not names:
        return {}
    world, own = source.world, {}
    if actor is not None:
        seen = (source.past, source.obs)
        own = eqx.filter_eval_shape(acting.choose, actor, *seen, keys, True)[2]
    own = {**own, **getattr(source, "recorded", {})}
    shape = (world.seeds, world.spec.envs)
    known = {name: (*shape, *each.shape) for name, each in world.spec.channels.items()}
    known |= {name: each.shape for name, each in own.items()}
    for name in names:
        if name not in known:
            raise Mistake(
                f"keep names {name!r}, and what is recorded is {', '.join(known) or 'nothing'}; "
                "keep one of those"
            )
    return {name: jnp.zeros(known[name], getattr(own.get(name), "dtype", None)) for name in names}


def _prioritised(needs: AnyNeeds) -> Feed | None:
    """The feed that draws by priorities."""
    by = [feed for feed in needs.feeds if feed.priority]
    if len(by) > 1:
        raise Mistake("one feed may draw by priorities; set the others' priority to 0")
    return by[0] if by else None


def _window(needs: AnyNeeds) -> int:
    """Rows that must be known before the first of them may be drawn by its priority."""
    by = _prioritised(needs)
    return by.window if by is not None else 1


Kept = tuple[Ring, Priorities | None, Relabel | None]


def _round(rows: int) -> int:
    """The next power of two: runs of many lengths share programs."""
    return 1 << (rows - 1).bit_length()


@eqx.filter_jit(donate="all-except-first")
def _keep(new: tuple[Record, int], kept: Kept) -> Kept:
    """Add rows; those whose window is now complete may be drawn with the largest priority."""
    rows, window = new
    before, priorities, change = kept
    ring = before.insert(rows)
    change = None if change is None else change.insert(before, rows)
    if priorities is None:
        return ring, None, change
    ready = rows.reward.shape[1]
    back, after = ready + window - 1, ring.stack
    offset = jnp.arange(-back, after, dtype=jnp.int32)
    row = jnp.mod(ring.head + offset, ring.rows)
    seeds, envs = ring.words.shape[0], ring.words.shape[2]
    row, env = (x.reshape(-1) for x in jnp.meshgrid(row, jnp.arange(envs, dtype=jnp.int32)))
    shape = (seeds, row.size)
    mask = ring.mask(Place.of_all(jnp.broadcast_to(row, shape), jnp.broadcast_to(env, shape)))
    complete = jnp.tile(offset < ready - back, envs)
    return ring, priorities.admit(row * envs + env, mask & complete[None]), change
