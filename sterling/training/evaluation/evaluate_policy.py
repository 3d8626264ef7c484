"""Evaluate a frozen policy by whole episodes in a separate world."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Int, Key

from sterling import random_keys as named
from sterling.actor import Actor
from sterling.experience.levels.one_level import begun_levels
from sterling.experience.rollouts.adaptation_rollout import adapt_agent, steps_to_adapt
from sterling.experience.rollouts.whole_episodes import (
    EpisodeRunner,
    EpisodeState,
    OnStep,
    run_steps,
)
from sterling.problem.joined_path import named_leaves
from sterling.report.episodes.episodes_file import LEVEL
from sterling.system.terminal_messages import print_notice
from sterling.training.config.settings import EVALUATION_LIMIT
from sterling.training.evaluation.episode_recorder import EpisodeObserver
from sterling.training.runtime.program_store import StoredJit
from sterling.types import World

CHUNK_STEPS = 100  # steps between checks whether all episodes have ended
PROGRESS_SECONDS = 20.0  # seconds between progress lines of a long evaluation
BEFORE = "return.before"  # column of an agent that adapts: returns without adaptation


def evaluate(
    agent: Actor,
    world: World,
    seeds: Int[Array, "seed"],
    episodes: int | None = None,
    limit: int = EVALUATION_LIMIT,
    *,
    fresh: bool = False,
    recorder: EpisodeObserver | None = None,
    stored_as: str = "",
) -> dict[str, np.ndarray]:
    """Play ``episodes`` episodes per seed (default: one per env) with the deterministic policy.

    Every env plays equally many, in rounds, so that short episodes are not over-represented. An
    episode that has not ended after ``limit`` steps (rounded up to a multiple of ``CHUNK_STEPS``)
    counts with its return so far; a line on standard error says how many did.
    An agent that adapts (``needs.adapt``) first takes that many steps in the level of each episode,
    with exploration, and plays the episode after adaptation.
    ``fresh``: play other episodes than those of the evaluations without it.
    With a ``recorder`` the world is stepped from the host, and the recorder sees every step.
    ``stored_as``: what names the program in the open store (``program_store.py``), if ``agent`` and
    ``world`` are those that the run's settings make.
    Return ``"return"``, ``"length"``, ``"ended"`` and the columns of the world's channels, each
    ``(seed, episode)``; for an agent that adapts also ``BEFORE``, the returns of the same episodes
    without adaptation. In a world with levels the leaves of each episode's level are columns
    "level/NAME" ``(seed, episode, ...)``, "level/value" where it is one array.
    """
    wanted, envs = episodes or world.spec.envs, world.spec.envs
    limit, count = -(-limit // CHUNK_STEPS) * CHUNK_STEPS, -(-wanted // envs)
    own = named.fold_each(_seed_keys(seeds), "fresh") if fresh else _seed_keys(seeds)
    runner = StoredRunner(world, stored_as=stored_as)
    rounds = [_play_round(agent, runner, own, (number, limit), recorder) for number in range(count)]
    found, over = jax.tree.map(lambda *each: np.concatenate(each, 1)[:, :wanted], *rounds)
    if unended := int((~over).sum()):
        said = f"{unended} of {over.size} evaluation episodes had not ended"
        remedy = "they count with their return so far (--evaluate-limit N changes the limit)"
        print_notice(f"{said} after {limit:,} steps; {remedy}")
    return {**found, "ended": over}


_seed_keys = jax.jit(jax.vmap(jax.random.key))


class StoredRunner(EpisodeRunner):
    """An EpisodeRunner whose compiled program may be in the open store, as ``stored_as``."""

    stored_as: str = eqx.field(static=True, default="")

    def advance(
        self,
        actor: Actor,
        playing: EpisodeState,
        keys: Key[Array, "seed"],
        clock: int,
        steps: int,
        *,
        notice: OnStep | None = None,
    ) -> EpisodeState:
        """See :class:`EpisodeRunner`."""
        if not (self.stored_as and self.world.traced) or notice is not None:
            return super().advance(actor, playing, keys, clock, steps, notice=notice)
        world: Any = self.world
        program, chance = _stored_steps(world, steps), (keys, np.int32(clock))
        played: EpisodeState = program(actor, playing, chance, facts=[self.stored_as, steps])
        return played


@functools.lru_cache(maxsize=4)  # keeps the worlds alive
def _stored_steps(world: Any, steps: int) -> StoredJit:
    jitted = jax.jit(lambda actor, playing, chance: run_steps(world, actor, playing, chance, steps))
    return StoredJit("evaluate", jitted, lambda actor, playing, chance: playing)


def _play_round(
    agent: Actor,
    runner: EpisodeRunner,
    own: Key[Array, "seed"],
    which: tuple[int, int],
    recorder: EpisodeObserver | None,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Play one episode of every env, after adaptation if the agent adapts; return its columns and
    whether it ended, ``(seed, env)``. ``which``: the round's number, and the limit of steps."""
    number, _ = which
    if not steps_to_adapt(agent):
        return _play_episodes(agent, runner, own, which, recorder)
    episodes = dataclasses.replace(runner, one_level=True)
    before, _ = _play_episodes(agent, episodes, own, which)
    keys = named.fold_each(own, "evaluate-adapt", number)
    actor = adapt_agent(agent, runner.world, episodes.level_keys(own, number), keys)
    columns, over = _play_episodes(actor, episodes, own, which, recorder)
    return {**columns, BEFORE: before["return"]}, over


def _play_episodes(
    agent: Actor,
    episodes: EpisodeRunner,
    own: Key[Array, "seed"],
    which: tuple[int, int],
    recorder: EpisodeObserver | None = None,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Play one episode of every env with the actor as it is; return the same."""
    number, limit = which
    playing = episodes.begin(agent, own, number)
    notice = None if recorder is None else recorder.notice
    if recorder is not None:
        recorder.begin_round(number)
    due = time.monotonic() + PROGRESS_SECONDS
    for clock in range(0, limit, CHUNK_STEPS):
        now = number * limit + clock  # every round has its own random numbers
        playing = episodes.advance(agent, playing, own, now, CHUNK_STEPS, notice=notice)
        over = np.asarray(playing.over)
        if over.all():
            break
        if time.monotonic() > due:
            due = time.monotonic() + PROGRESS_SECONDS
            ended = f"{over.sum()} of {over.size} episodes have ended"
            print_notice(
                f"evaluating: {ended} after {clock + CHUNK_STEPS:,} of at most {limit:,} steps"
            )
    columns, over = jax.tree.map(np.asarray, (episodes.column_values(playing), playing.over))
    if recorder is not None:
        recorder.end_round(number, columns["return"])
    return {**columns, **_level_columns(episodes, own, number)}, over


def _level_columns(
    episodes: EpisodeRunner, own: Key[Array, "seed"], number: int
) -> dict[str, np.ndarray]:
    """Return the leaves of the levels of the ``number``-th episodes, ``(seed, env, ...)``."""
    one = episodes.one_level
    keys = episodes.level_keys(own, number) if one else named.fold_each(own, "evaluate", number)
    level = begun_levels(episodes.world, keys, one)
    return {f"{LEVEL}{name or 'value'}": _plain(leaf) for name, leaf in named_leaves(level)}


def _plain(leaf: Array) -> np.ndarray:
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)
