"""First return, then explore: rollouts that begin where an archive says."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import keys as named
from sterling.actor import Actor
from sterling.envs.starts import Start, able
from sterling.equations.level_replay import drawn
from sterling.experience.layers import Layer, Numbers
from sterling.experience.rollout import Rollout
from sterling.experience.stepwise import Stepwise, lived
from sterling.seeds import over_seeds
from sterling.types import Obs, Record

SLOTS = 4096  # cells that an archive has room for
PARTS = 8  # into so many parts is each unit of an observation divided by cells
STEPS = 20  # steps of exploring after a return


class Archive(eqx.Module):
    """The best way to each cell that was found: where it led to, and its return on the way."""

    start: Start  # leaves ``(seed, slot, ...)``
    score: Float[Array, "seed slot"]
    filled: Bool[Array, "seed slot"]
    seen: Int[Array, "seed slot"]  # steps that led into the cell

    def at(self, slot: Int[Array, "seed env"]) -> tuple[Start, Float[Array, "seed env"]]:
        """What the slots hold."""
        start = jax.tree.map(lambda leaf: _gathered(leaf, slot), self.start)
        return start, _gathered(self.score, slot)

    def edges(self) -> Float[Array, "seed slot"]:
        """Cumulated weights 1 / sqrt(seen + 1) of the cells that were found."""
        return over_seeds("map", _edges)(self.filled, self.seen)

    def offered(
        self, here: Start, score: Float[Array, "seed env"], valid: Bool[Array, "seed env"]
    ) -> Archive:
        """With the ways to where the ``valid`` envs are, where they are new or better: of a larger
        return, or the same one in fewer steps. Of envs in one cell the first better one is kept."""
        slot = cells(here.obs)
        start, best = self.at(slot)
        steps: Any = here.elapsed
        quicker = (score == best) & (steps < start.elapsed)
        better = valid & (~_gathered(self.filled, slot) | (score > best) | quicker)
        same = (slot[:, :, None] == slot[:, None, :]) & better[:, None, :]
        first = jnp.argmax(same, 2) == jnp.arange(slot.shape[1])[None]
        into = jnp.where(better & first, slot, SLOTS)  # out of bounds: nowhere

        def put(old: Array, new: Array) -> Array:
            return jax.vmap(lambda one, at, each: one.at[at].set(each, mode="drop"))(old, into, new)

        filled = put(self.filled, better)
        count = jax.vmap(lambda one, at, each: one.at[at].add(each))
        seen = count(self.seen, slot, valid.astype(jnp.int32))
        start = jax.tree.map(put, self.start, here)
        return Archive(start, put(self.score, score), filled, seen)


class GoExplore(Stepwise, eqx.Module):
    """Go-Explore (Ecoffet 2021, "First return, then explore", Nature 590, arXiv:2004.12919) in the
    form that returns by restoring the world's state; ``source`` lives in an exact world.

    Observations that are alike are one cell: each number is rounded to an eighth, and cells are
    hashed into ``SLOTS`` slots (two that meet there share one). Every ``STEPS`` steps, and where an
    episode is over, an env goes back to a cell that is drawn by 1 / sqrt(times it was seen + 1), by
    a masked row, and goes on from there.

    Deviations from the paper: the agent that learns explores, not chance; what was found is learned
    by that agent from what it lives, not by going backwards along the best way (the paper's
    robustification), so a learner with a replay serves better than one without; the weights hold
    for as long as one call lives. Episodes that began elsewhere count in ``data/return`` with what
    they earned since: judge by evaluations.
    """

    source: Rollout
    archive: Archive
    edges: Float[Array, "seed slot"]
    score: Float[Array, "seed env"]  # return since the world's own beginning
    left: Int[Array, "seed env"]  # steps before it goes back; 0: now

    @classmethod
    def create(
        cls, source: Rollout, numbers: Numbers, keys: Key[Array, "seed"], actor: Actor
    ) -> GoExplore:
        """Knowing nothing but where it stands. Raises Mistake where worlds cannot go back."""
        world, shape = source.world, (source.world.seeds, source.world.spec.envs)
        here = able(world).here(source.state, source.obs)
        state = able(world).assign(source.state, here, jnp.zeros(shape, bool))
        room = jax.tree.map(lambda x: jnp.zeros((shape[0], SLOTS, *x.shape[2:]), x.dtype), here)
        zeros, none = jnp.zeros((shape[0], SLOTS)), jnp.zeros((shape[0], SLOTS), bool)
        archive = Archive(room, zeros, none, none.astype(jnp.int32))
        archive = archive.offered(here, jnp.zeros(shape), jnp.ones(shape, bool))
        source = dataclasses.replace(source, state=state)
        left = jnp.full(shape, STEPS, jnp.int32)
        return cls(source, archive, archive.edges(), jnp.zeros(shape), left)

    def live(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[GoExplore, Record]:
        """Act for ``length`` steps."""
        weighed = dataclasses.replace(self, edges=self.archive.edges())
        return super(GoExplore, weighed).live(agent, keys)

    def _step(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[GoExplore, Record]:
        """One step of every env, ``(seed, env, ...)``; a return is one."""
        envs, own = self.left.shape[1], named.fold_each(keys, "cell")
        share = jax.vmap(lambda key: jax.random.uniform(key, (envs,)))(own)
        back, score = self.archive.at(jax.vmap(drawn)(self.edges, share))
        due = self.left <= 0
        state = able(self.world).assign(self.source.state, back, due, now=True)
        after, row = lived(dataclasses.replace(self.source, state=state), agent, keys)
        score = jnp.where(due, score, self.score) + jnp.where(row.mask, row.reward, 0.0)
        here = able(self.world).here(after.state, after.obs)
        archive = self.archive.offered(here, score, ~row.last)
        left = jnp.where(due, STEPS, jnp.where(row.last, 0, self.left - 1))
        return GoExplore(after, archive, self.edges, score, left), row


def cells(obs: Obs) -> Int[Array, "seed env"]:
    """The slots of observations: a hash of their numbers, each rounded to an eighth."""
    total: Any = jnp.uint32(0)
    for index, leaf in enumerate(jax.tree.leaves(obs)):
        parts = jnp.round(leaf.astype(jnp.float32) * PARTS).astype(jnp.int32).astype(jnp.uint32)
        flat = parts.reshape(*leaf.shape[:2], -1)
        place = jnp.arange(1, flat.shape[2] + 1, dtype=jnp.uint32) + jnp.uint32(index << 16)
        total = total + jnp.sum(
            named.finalised(flat ^ named.finalised(place)[None, None]), 2, dtype=jnp.uint32
        )
    return (named.finalised(total) % SLOTS).astype(jnp.int32)


def _gathered(leaf: Array, slot: Int[Array, "seed env"]) -> Array:
    return jax.vmap(lambda one, at: one[at])(leaf, slot)


def _edges(filled: Bool[Array, "slot"], seen: Int[Array, "slot"]) -> Float[Array, "slot"]:
    return jnp.cumsum(jnp.where(filled, 1.0 / jnp.sqrt(seen.astype(jnp.float32) + 1.0), 0.0))


LAYER = Layer(
    "go-explore",
    "episodes go on from an archive of states that were reached",
    rollouts=GoExplore.create,
    begins=True,
)
