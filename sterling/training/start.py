"""From settings to a run: the world, the agent and the source, built for every seed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from sterling import algorithms, envs, keys
from sterling.experience.replay import Replay
from sterling.experience.rollout import Rollout
from sterling.training.agent import Agent
from sterling.training.loop import Run
from sterling.training.settings import Settings, iterations
from sterling.types import Rollouts, World


def remember_programs() -> None:
    """Keep compiled programs on disk between processes (JAX_COMPILATION_CACHE_DIR to move them)."""
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sterling" / "xla"
        jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def build(settings: Settings, *, warm: bool = True) -> Run:
    """A run at iteration 0; without ``warm`` the replay stays empty (to be filled on resuming)."""
    begin = beginning(settings, make_world(settings))
    return begin(jnp.asarray(settings.seeds, jnp.int32), None, warm)


def beginning(settings: Settings, world: World) -> Callable[..., Run]:
    """``begin(seeds, own, warm)``: runs at iteration 0 in one world, compiled only once.

    ``own`` gives each member of the seed axis its own numbers (see ``Agent.create``), or is None;
    ``seeds`` may then hold one seed several times: members of one seed meet the same randomness.
    """
    algorithm: Any = algorithms.find(settings.algorithm)
    needs = algorithm.needs(settings.config)

    def make(seeds: Int[Array, "seed"], own: Any) -> tuple[Agent, Any]:
        start = keys.at(seeds, "source", 0)
        rollouts = isinstance(needs, Rollouts)
        rollout = Rollout.create(world, needs.length if rollouts else needs.collect, start)
        agent = create_agent(settings, world, seeds, own)
        if rollouts:
            return agent, rollout
        return agent, Replay.create(rollout, needs, getattr(world, "stack", 1), start)

    create = jax.jit(make) if world.exact else make

    def begin(seeds: Int[Array, "seed"], own: Any, warm: bool) -> Run:
        agent, source = create(seeds, own)
        if warm and isinstance(source, Replay):
            source = source.warm(keys.at(seeds, "warm", 0))
        return Run(agent, source, seeds, jnp.zeros((), jnp.int32))

    return begin


def make_world(settings: Settings, purpose: str = "train", copies: int | None = None) -> World:
    """The settings' world, ``copies`` (default: ``settings.envs``) for each seed."""
    count = settings.envs if copies is None else copies
    return envs.make(
        settings.environment,
        settings.seeds,
        count,
        purpose=purpose,
        strategy=settings.inside,
        **settings.env_options,
    )


def create_agent(
    settings: Settings, world: World, seeds: Int[Array, "seed"] | None = None, own: Any = None
) -> Agent:
    """A fresh agent for every seed, in one program; ``own`` as in ``Agent.create``."""
    algorithm: Any = algorithms.find(settings.algorithm)
    spec = dataclasses.replace(world.spec, envs=settings.envs, iterations=iterations(settings))
    seeds = jnp.asarray(settings.seeds, jnp.int32) if seeds is None else seeds

    @jax.jit
    def create(seeds: Int[Array, "seed"], own: Any) -> Agent:
        start = keys.at(seeds, "agent", 0)
        return Agent.create(algorithm, start, spec, settings.config, settings.inside, own=own)

    return create(seeds, own)
