"""Whole episodes of a population: in every iteration each env plays one, by a member of its own.

An episode is a row ``(env,)``: ``reward`` its return, ``extras["episode/NAME"]`` what each of its
columns came to, as it stands where the limit cut it (``discount`` is 0: nothing is to be added),
``mask`` False where the world answered NaN. ``start`` is the :class:`Lives`. Nothing goes over from
one iteration to the next, so nothing is stored, whatever the world.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from sterling import keys as named
from sterling.actor import Actor, Past
from sterling.envs.traced import select
from sterling.experience.draws import Ready, Unvisited
from sterling.experience.episodes import Episodes, Playing, Seen
from sterling.experience.rollout import Tally
from sterling.seeds import over_seeds
from sterling.types import Action, Algorithm, Obs, Record, World


class Lives(eqx.Module):
    """What a population's members were made by, and what their episodes saw."""

    key: Key[Array, "..."]
    seen: Seen


class Members(eqx.Module):
    """An actor that is another one in every env: ``states`` have leaves ``(seed, env, ...)``. Where
    the algorithm remembers, every member does so by itself, and begins anew with its episode."""

    states: PyTree
    algorithm: Algorithm = eqx.field(static=True)
    strategy: str = eqx.field(static=True)

    @classmethod
    @eqx.filter_jit
    def of(cls, agent: Any, envs: int, keys: Key[Array, "seed"]) -> Members:
        """The members of every seed's agent."""

        def of_seed(state: PyTree, key: Key[Array, ""]) -> PyTree:
            every = jnp.arange(envs, dtype=jnp.int32)
            return jax.vmap(lambda env: agent.algorithm.member(state, key, env))(every)

        states = over_seeds(agent.strategy, of_seed)(agent.state, keys)
        return cls(states, agent.algorithm, agent.strategy)

    def act(
        self, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, dict[str, Array]]:
        """Every env's action by its own member."""
        algorithm: Any = self.algorithm

        def of_env(state: PyTree, obs: Obs, key: Key[Array, ""]) -> Action:
            action, _ = algorithm.act(state, _as_batch(obs), key, explore)
            return _only(action)

        return self._each(of_env, (obs,), keys), {}

    def memory(self, envs: int, keys: Key[Array, "seed"]) -> PyTree:
        """Every member's memory of nothing, leaves ``(seed, env, ...)``; None where the algorithm
        acts by what it sees alone."""
        begin = getattr(self.algorithm, "memory", None)
        if begin is None:
            return None
        return self._each(lambda state, key: _only(begin(state, 1, key)), (), keys)

    def recall(
        self, past: Past, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, PyTree, dict[str, Array]]:
        """Every env's action by what its own member remembers, and its memory from now on."""
        algorithm: Any = self.algorithm

        def of_env(state: PyTree, past: Past, obs: Obs, key: Key[Array, ""]) -> Any:
            own = _as_batch((past, obs))
            action, memory, _ = algorithm.recall(state, *own, key, explore)
            return _only((action, memory))

        return *self._each(of_env, (past, obs), keys), {}

    def _each(
        self, of_env: Callable[..., PyTree], given: tuple[PyTree, ...], keys: Key[Array, "seed"]
    ) -> Any:
        """``of_env(state, *given, key)`` of every env of every seed."""

        def of_seed(states: PyTree, given: tuple[PyTree, ...], key: Key[Array, ""]) -> PyTree:
            envs = jax.tree.leaves(states)[0].shape[0]
            return jax.vmap(of_env)(states, *given, named.deal(key, "env", envs))

        return over_seeds(self.strategy, of_seed)(self.states, given, keys)


class Population(Unvisited, eqx.Module):
    """One episode of every env of ``world`` in an iteration, of at most ``limit`` steps."""

    world: World = eqx.field(static=True)
    limit: int = eqx.field(static=True)
    tally: Tally

    @classmethod
    def create(cls, world: World, limit: int) -> Population:
        """Nothing lived yet."""
        return cls(world, limit, Tally.empty(world.seeds, world.spec.channels))

    @property
    def traced(self) -> bool:
        """Whether collecting may be compiled: every iteration resets the world, which simulators
        that are only stepped inside a program do outside."""
        return self.world.traced and self.world.exact

    @property
    def worlds(self) -> tuple[World, ...]:
        """The world that experience comes from."""
        return (self.world,)

    def collect(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Population, Ready]:
        """Play one episode of every env: one batch is all of them."""
        members, own = named.fold_each(keys, "members"), named.fold_each(keys, "episodes")
        actor = Members.of(agent, self.world.spec.envs, members)
        episodes = Episodes(self.world, watched=True)
        playing = episodes.begin(actor, own)
        playing = episodes.go_on(actor, playing, own, 0, self.limit)
        tally, rows = _booked(self.tally, episodes, playing, members)
        return dataclasses.replace(self, tally=tally), Ready(rows)

    def warm(self, agent: Actor, keys: Key[Array, "seed"], *, chance: bool) -> Population:
        """Nothing is lived before the first update."""
        return self

    def hearing(self, heard: PyTree) -> Population:
        """Episodes are what they are."""
        return self

    def cleared(self) -> Population:
        """With an empty tally."""
        empty = Tally.empty(self.world.seeds, self.world.spec.channels)
        return dataclasses.replace(self, tally=empty)

    def stored(self) -> Population:
        """All of it: the tally."""
        return self

    def restored(self, fresh: Population) -> Population:
        """The same."""
        return self

    def close(self) -> None:
        """Release the world."""
        self.world.close()


def _as_batch(tree: PyTree) -> PyTree:
    """What one env has, as that of a batch of one."""
    return jax.tree.map(lambda x: x[None], tree)


def _only(tree: PyTree) -> PyTree:
    """The one env's part of a batch of one."""
    return jax.tree.map(lambda x: x[0], tree)


@eqx.filter_jit
def _booked(
    tally: Tally, episodes: Episodes, playing: Playing, members: Key[Array, "seed"]
) -> tuple[Tally, Record]:
    """The episodes as rows, and counted."""
    found, seen = episodes.found(playing), playing.seen
    assert seen is not None
    sound = _finite((found, seen), playing.over.shape)
    columns = {name: jnp.where(sound, x, 0) for name, x in found.items()}
    record = Record(
        obs=None,
        action=None,
        reward=columns["return"],
        discount=jnp.zeros(sound.shape),
        next_obs=None,
        last=jnp.ones_like(sound),
        mask=sound,
        extras={f"episode/{name}": x for name, x in columns.items()},
        start=Lives(members, select(sound, seen, jax.tree.map(jnp.zeros_like, seen))),
    )
    ended: dict[str, Float[Array, "seed"]] = {
        name: tally.totals[name] + x.sum(1).astype(jnp.float32) for name, x in columns.items()
    }
    counted: Int[Array, "seed"] = tally.episodes + sound.sum(1, dtype=jnp.int32)
    invalid = playing.crashes.sum(1, dtype=jnp.int32) + (~sound).sum(1, dtype=jnp.int32)
    return Tally(ended, counted, tally.invalid + invalid), record


def _finite(tree: PyTree, shape: tuple[int, ...]) -> Array:
    """Of which envs all numbers are finite."""
    good = jnp.ones(shape, bool)
    for leaf in jax.tree.leaves(tree):
        good = good & jnp.isfinite(leaf).all(axis=tuple(range(2, leaf.ndim)))
    return good
