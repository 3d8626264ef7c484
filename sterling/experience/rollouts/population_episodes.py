"""Whole episodes of a population (evolution strategies): each env runs one episode per iteration,
with its own member.

An episode is a row ``(env,)``: ``reward`` is its return, ``extras["episode/NAME"]`` its channel
columns, as they stand where the step limit cuts it (``discount`` is 0, so nothing is bootstrapped),
and ``mask`` is False where the world returned NaN. ``start`` is a :class:`PopulationInfo`. If the
feed asks for them, the episodes' steps stand beside them, ``(env, time, ...)`` (``Feed``). Nothing
carries over from one iteration to the next, so no world state is saved, whatever the world.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from sterling import random_keys as named
from sterling.actor import Actor, Past
from sterling.envs.traced_world import tree_where
from sterling.experience.batch_draws import Due, NoVisits, PreparedBatches, every_feed
from sterling.experience.rollouts.episode_tally import Tally
from sterling.experience.rollouts.whole_episodes import EpisodeRunner, EpisodeState, ObsMoments
from sterling.needs.feed import STEPS
from sterling.seed_axis import over_seeds
from sterling.types import Action, Algorithm, Obs, Record, World


class PopulationInfo(eqx.Module):
    """The random key that a population's members were made from, and their observations'
    moments."""

    key: Key[Array, "..."]
    seen: ObsMoments


class PopulationActor(eqx.Module):
    """An actor with a different member in every env: ``states`` has leaves ``(seed, env, ...)``.

    If the algorithm has a memory, every member has its own, reset with its episode.
    """

    states: PyTree
    algorithm: Algorithm = eqx.field(static=True)
    strategy: str = eqx.field(static=True)

    @classmethod
    @eqx.filter_jit
    def create(cls, agent: Any, envs: int, keys: Key[Array, "seed"]) -> PopulationActor:
        """Create the members of every seed's agent."""

        def of_seed(state: PyTree, key: Key[Array, ""]) -> PyTree:
            every = jnp.arange(envs, dtype=jnp.int32)
            return jax.vmap(lambda env: agent.algorithm.member(state, key, env))(every)

        states = over_seeds(agent.strategy, of_seed)(agent.state, keys)
        return cls(states, agent.algorithm, agent.strategy)

    @classmethod
    @eqx.filter_jit
    def from_adaptation(cls, agent: Any, rows: Record, keys: Key[Array, "seed"]) -> PopulationActor:
        """Adapt every seed's agent to each env's ``rows`` ``(seed, time, env, ...)``; the
        algorithm's ``adapt`` gets those of one env, ``(time, 1, ...)``."""

        def of_seed(state: PyTree, rows: Record, key: Key[Array, ""]) -> PyTree:
            per_env = jax.tree.map(
                lambda x: jnp.swapaxes(x, 0, 1)[:, :, None], dataclasses.replace(rows, start=None)
            )
            start = jax.tree.map(lambda x: x[:, None], rows.start)
            per_env = dataclasses.replace(per_env, start=start)
            env_keys = named.split(key, "env", rows.mask.shape[1])
            adapt = agent.algorithm.adapt
            return jax.vmap(lambda rows, key: adapt(state, rows, key))(per_env, env_keys)

        states = over_seeds(agent.strategy, of_seed)(agent.state, rows, keys)
        return cls(states, agent.algorithm, agent.strategy)

    def act(
        self, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, dict[str, Array]]:
        """Return every env's action, chosen by its own member, and the extras to record."""
        algorithm: Any = self.algorithm

        def of_env(state: PyTree, obs: Obs, key: Key[Array, ""]) -> Any:
            return _unbatch(algorithm.act(state, _as_batch(obs), key, explore))

        action, extras = self._each(of_env, (obs,), keys)
        return action, extras

    def memory(self, envs: int, keys: Key[Array, "seed"]) -> PyTree:
        """Return every member's empty memory, leaves ``(seed, env, ...)``; None if the algorithm
        has none."""
        begin = getattr(self.algorithm, "memory", None)
        if begin is None:
            return None
        return self._each(lambda state, key: _unbatch(begin(state, 1, key)), (), keys)

    def recall(
        self, past: Past, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, PyTree, dict[str, Array]]:
        """Return every env's action by its own member, the new memories, and the extras to
        record."""
        algorithm: Any = self.algorithm

        def of_env(state: PyTree, past: Past, obs: Obs, key: Key[Array, ""]) -> Any:
            return _unbatch(algorithm.recall(state, *_as_batch((past, obs)), key, explore))

        action, memory, extras = self._each(of_env, (past, obs), keys)
        return action, memory, extras

    def _each(
        self, of_env: Callable[..., PyTree], given: tuple[PyTree, ...], keys: Key[Array, "seed"]
    ) -> Any:
        """Apply ``of_env(state, *given, key)`` to every env of every seed."""

        def of_seed(states: PyTree, given: tuple[PyTree, ...], key: Key[Array, ""]) -> PyTree:
            envs = jax.tree.leaves(states)[0].shape[0]
            return jax.vmap(of_env)(states, *given, named.split(key, "env", envs))

        return over_seeds(self.strategy, of_seed)(self.states, given, keys)


class StatelessSource(NoVisits):
    """Base of sources that carry only a tally over from one iteration to the next."""

    world: World
    tally: Tally

    @property
    def traced(self) -> bool:
        """Whether collecting can be compiled.

        Every iteration resets the world; simulators that can only be stepped in a program must be
        reset outside of it.
        """
        return self.world.traced and self.world.exact

    @property
    def worlds(self) -> tuple[World, ...]:
        """Return the world that experience comes from."""
        return (self.world,)

    def warm_up(self, agent: Actor, keys: Key[Array, "seed"], *, chance: bool) -> Any:
        """No-op: there is no warm-up."""
        return self

    def with_feedback(self, feedback: PyTree) -> Any:
        """No-op: learning does not change this source."""
        return self

    def reset_statistics(self) -> Any:
        """Return the source with an empty tally."""
        source: Any = self
        return dataclasses.replace(source, tally=Tally.of_world(self.world))

    def to_checkpoint(self) -> Any:
        """Return the source itself: only the tally is saved."""
        return self

    def from_checkpoint(self, fresh: Any) -> Any:
        """Return the saved source itself."""
        return self

    def close(self) -> None:
        """Close the world."""
        self.world.close()


class Population(StatelessSource, eqx.Module):
    """Runs one episode per env of ``world`` in each iteration, of at most ``limit`` steps."""

    world: World = eqx.field(static=True)
    limit: int = eqx.field(static=True)
    tally: Tally
    recorded: bool = eqx.field(static=True, default=False)  # steps stand beside the episodes

    @classmethod
    def create(cls, world: World, limit: int, *, recorded: bool = False) -> Population:
        """Create the source with an empty tally."""
        return cls(world, limit, Tally.of_world(world), recorded)

    def collect(
        self, agent: Actor, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[Population, PreparedBatches]:
        """Run one episode per env; all of them form one batch."""
        members, own = named.fold_each(keys, "members"), named.fold_each(keys, "episodes")
        actor = PopulationActor.create(agent, self.world.spec.envs, members)
        steps = self.limit if self.recorded else 0
        episodes = EpisodeRunner(self.world, watched=True, recorded=steps)
        playing = episodes.begin(actor, own)
        playing = episodes.advance(actor, playing, own, 0, self.limit)
        tally, rows = _record_episodes(self.tally, episodes, playing, members)
        return dataclasses.replace(self, tally=tally), PreparedBatches(rows)


def _as_batch(tree: PyTree) -> PyTree:
    """Add a batch axis of one."""
    return jax.tree.map(lambda x: x[None], tree)


def _unbatch(tree: PyTree) -> PyTree:
    """Remove the batch axis of one."""
    return jax.tree.map(lambda x: x[0], tree)


@eqx.filter_jit
def _record_episodes(
    tally: Tally, episodes: EpisodeRunner, playing: EpisodeState, members: Key[Array, "seed"]
) -> tuple[Tally, Record]:
    """Convert the episodes to rows, and add them to the tally."""
    found, seen = episodes.column_values(playing), playing.seen
    assert seen is not None
    sound = _finite_envs((found, seen), playing.over.shape)
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
        start=PopulationInfo(members, tree_where(sound, seen, jax.tree.map(jnp.zeros_like, seen))),
        beside={} if playing.rows is None else {STEPS: playing.rows.finished(playing.over, sound)},
    )
    ended: dict[str, Float[Array, "seed"]] = {
        name: tally.totals[name] + x.sum(1).astype(jnp.float32) for name, x in columns.items()
    }
    counted: Int[Array, "seed"] = tally.episodes + sound.sum(1, dtype=jnp.int32)
    invalid = playing.crashes.sum(1, dtype=jnp.int32) + (~sound).sum(1, dtype=jnp.int32)
    empty = tally.empty_choice
    if empty is not None and playing.empty_choice is not None:
        empty = jnp.maximum(empty, playing.empty_choice)
    return Tally(ended, counted, tally.invalid + invalid, empty), record


def _finite_envs(tree: PyTree, shape: tuple[int, ...]) -> Array:
    """Return in which envs all numbers are finite."""
    good = jnp.ones(shape, bool)
    for leaf in jax.tree.leaves(tree):
        good = good & jnp.isfinite(leaf).all(axis=tuple(range(2, leaf.ndim)))
    return good
