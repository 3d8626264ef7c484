"""Go-Explore: rollouts whose episodes start from an archive of reached states."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import random_keys as named
from sterling.actor import Actor
from sterling.envs.episode_starts import Start, require_startable
from sterling.equations.level_scores import levels_from_uniform
from sterling.experience.rollouts.rollout import Rollout
from sterling.experience.rollouts.rollout_wrapper import Stepwise, act_one_step
from sterling.experience.source_layers import Layer, NoOptions
from sterling.seed_axis import over_seeds
from sterling.types import Obs, Record

SLOTS = 4096  # capacity of an archive, in cells
CELLS_PER_UNIT = 8  # cells per unit of each observation entry
EXPLORE_STEPS = 20  # exploration steps after each restored state


class Archive(eqx.Module):
    """The best known state of each cell: a restorable state, and the return on the way there."""

    start: Start  # leaves ``(seed, slot, ...)``
    score: Float[Array, "seed slot"]
    filled: Bool[Array, "seed slot"]
    seen: Int[Array, "seed slot"]  # how many steps ended in the cell

    def at(self, slot: Int[Array, "seed env"]) -> tuple[Start, Float[Array, "seed env"]]:
        """Return the states and scores in these slots."""
        start = jax.tree.map(lambda leaf: _gather(leaf, slot), self.start)
        return start, _gather(self.score, slot)

    def edges(self) -> Float[Array, "seed slot"]:
        """Return the cumulated weights 1 / sqrt(seen + 1) of the filled cells."""
        return over_seeds("map", _cumulative_weights)(self.filled, self.seen)

    def with_candidates(
        self, here: Start, score: Float[Array, "seed env"], valid: Bool[Array, "seed env"]
    ) -> Archive:
        """Add the states of the ``valid`` envs where their cell is empty or they are better.

        Better means a larger return, or the same return in fewer steps. If several envs are in one
        cell, the first better one is kept.
        """
        slot = cells(here.obs)
        start, best = self.at(slot)
        steps: Any = here.elapsed
        quicker = (score == best) & (steps < start.elapsed)
        better = valid & (~_gather(self.filled, slot) | (score > best) | quicker)
        same = (slot[:, :, None] == slot[:, None, :]) & better[:, None, :]
        first = jnp.argmax(same, 2) == jnp.arange(slot.shape[1])[None]
        into = jnp.where(better & first, slot, SLOTS)  # SLOTS is out of bounds: dropped

        def put(old: Array, new: Array) -> Array:
            return jax.vmap(lambda one, at, each: one.at[at].set(each, mode="drop"))(old, into, new)

        filled = put(self.filled, better)
        count = jax.vmap(lambda one, at, each: one.at[at].add(each))
        seen = count(self.seen, slot, valid.astype(jnp.int32))
        start = jax.tree.map(put, self.start, here)
        return Archive(start, put(self.score, score), filled, seen)


class GoExplore(Stepwise, eqx.Module):
    """Go-Explore (Ecoffet 2021, "First return, then explore", Nature 590, arXiv:2004.12919), in the
    form that returns by restoring the world's state; ``source`` must have an exact world.

    Similar observations share a cell: each number is rounded to an eighth, and cells are hashed
    into ``SLOTS`` slots (cells with the same hash share one). Every ``EXPLORE_STEPS`` steps, and
    where an episode is over, an env is restored, in one masked row, to a cell drawn with weight 1 /
    sqrt(times seen + 1), and continues from there.

    Deviations from the paper: the learning agent explores, not random actions; that agent learns
    from the collected experience, not backwards along the best trajectory (the paper's
    robustification), so a learner with a replay buffer works better than one without; the weights
    are updated once per ``live`` call. For episodes that started from the archive, ``data/return``
    counts only the rewards since: compare by evaluations.
    """

    source: Rollout
    archive: Archive
    edges: Float[Array, "seed slot"]
    score: Float[Array, "seed env"]  # return since the world's own reset
    left: Int[Array, "seed env"]  # steps until a state is restored; 0: now

    @classmethod
    def create(
        cls, source: Rollout, config: NoOptions, keys: Key[Array, "seed"], actor: Actor
    ) -> GoExplore:
        """Create an archive with only the present states. Raises Mistake if the world cannot be
        restored."""
        world, shape = source.world, (source.world.seeds, source.world.spec.envs)
        here = require_startable(world).current_start(source.state, source.obs)
        state = require_startable(world).assign_start(source.state, here, jnp.zeros(shape, bool))
        room = jax.tree.map(lambda x: jnp.zeros((shape[0], SLOTS, *x.shape[2:]), x.dtype), here)
        zeros, none = jnp.zeros((shape[0], SLOTS)), jnp.zeros((shape[0], SLOTS), bool)
        archive = Archive(room, zeros, none, none.astype(jnp.int32))
        archive = archive.with_candidates(here, jnp.zeros(shape), jnp.ones(shape, bool))
        source = dataclasses.replace(source, state=state)
        left = jnp.full(shape, EXPLORE_STEPS, jnp.int32)
        return cls(source, archive, archive.edges(), jnp.zeros(shape), left)

    def live(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[GoExplore, Record]:
        """Act for ``length`` steps in every env."""
        weighed = dataclasses.replace(self, edges=self.archive.edges())
        return super(GoExplore, weighed).live(agent, keys)

    def _step(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[GoExplore, Record]:
        """Take one step in every env, ``(seed, env, ...)``; restoring a state takes one step."""
        envs, own = self.left.shape[1], named.fold_each(keys, "cell")
        share = jax.vmap(lambda key: jax.random.uniform(key, (envs,)))(own)
        back, score = self.archive.at(jax.vmap(levels_from_uniform)(self.edges, share))
        due = self.left <= 0
        state = require_startable(self.world).assign_start(self.source.state, back, due, now=True)
        after, row = act_one_step(dataclasses.replace(self.source, state=state), agent, keys)
        score = jnp.where(due, score, self.score) + jnp.where(row.mask, row.reward, 0.0)
        here = require_startable(self.world).current_start(after.state, after.obs)
        archive = self.archive.with_candidates(here, score, ~row.last)
        left = jnp.where(due, EXPLORE_STEPS, jnp.where(row.last, 0, self.left - 1))
        return GoExplore(after, archive, self.edges, score, left), row


def cells(obs: Obs) -> Int[Array, "seed env"]:
    """Return the slot of each observation: a hash of its numbers, each rounded to an eighth."""
    total: Any = jnp.uint32(0)
    for index, leaf in enumerate(jax.tree.leaves(obs)):
        parts = (
            jnp.round(leaf.astype(jnp.float32) * CELLS_PER_UNIT)
            .astype(jnp.int32)
            .astype(jnp.uint32)
        )
        flat = parts.reshape(*leaf.shape[:2], -1)
        place = jnp.arange(1, flat.shape[2] + 1, dtype=jnp.uint32) + jnp.uint32(index << 16)
        total = total + jnp.sum(
            named.murmur_finaliser(flat ^ named.murmur_finaliser(place)[None, None]),
            2,
            dtype=jnp.uint32,
        )
    return (named.murmur_finaliser(total) % SLOTS).astype(jnp.int32)


def _gather(leaf: Array, slot: Int[Array, "seed env"]) -> Array:
    return jax.vmap(lambda one, at: one[at])(leaf, slot)


def _cumulative_weights(
    filled: Bool[Array, "slot"], seen: Int[Array, "slot"]
) -> Float[Array, "slot"]:
    return jnp.cumsum(jnp.where(filled, 1.0 / jnp.sqrt(seen.astype(jnp.float32) + 1.0), 0.0))


LAYER = Layer(
    "go-explore",
    "episodes continue from an archive of states reached before",
    rollouts=GoExplore.create,
    begins=True,
)
