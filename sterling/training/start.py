"""From settings to a run: the world, the agent and the source, built for every seed."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

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
    world = make_world(settings)
    algorithm: Any = algorithms.find(settings.algorithm)
    needs = algorithm.needs(settings.config)
    seeds = jnp.asarray(settings.seeds, jnp.int32)

    def begin() -> tuple[Agent, Any]:
        start = keys.at(seeds, "source", 0)
        rollouts = isinstance(needs, Rollouts)
        rollout = Rollout.create(world, needs.length if rollouts else needs.collect, start)
        if rollouts:
            return create_agent(settings, world), rollout
        source = Replay.create(rollout, needs, getattr(world, "stack", 1), start)
        return create_agent(settings, world), source

    agent, source = jax.jit(begin)() if world.exact else begin()
    if warm and isinstance(source, Replay):
        source = source.warm(keys.at(seeds, "warm", 0))
    return Run(agent, source, seeds, jnp.zeros((), jnp.int32))


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


def create_agent(settings: Settings, world: World) -> Agent:
    """A fresh agent for every seed, in one program."""
    algorithm: Any = algorithms.find(settings.algorithm)
    spec = dataclasses.replace(world.spec, envs=settings.envs, iterations=iterations(settings))
    seeds = jnp.asarray(settings.seeds, jnp.int32)

    @jax.jit
    def create() -> Agent:
        start = keys.at(seeds, "agent", 0)
        return Agent.create(algorithm, start, spec, settings.config, settings.inside)

    return create()
