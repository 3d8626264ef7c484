"""An earlier run as a guide."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from sterling.experience.guided import Expansion, Guided, JumpStart
from sterling.experience.rollout import Rollout
from sterling.training import checkpoint, folder
from sterling.training.agent import Agent, create_agent
from sterling.training.settings import Settings, iterations, offline_iterations, warmup_steps
from sterling.training.stored import read_settings
from sterling.types import Mistake


def guided(settings: Settings, rollout: Rollout) -> Rollout | Guided:
    """The rollout with the settings' guide, or as it is where there is none."""
    asked = settings.guide
    if asked is None:
        return rollout
    guide = _agents(settings, Path(asked.path), rollout)
    if asked.how == "expansion":
        return Guided(rollout, guide, Expansion(asked.temperature))
    rounds = iterations(settings) - offline_iterations(settings)
    draws = warmup_steps(settings) // settings.envs + rounds * rollout.length
    seeds, envs = rollout.world.seeds, rollout.world.spec.envs
    rule = JumpStart.create(seeds, envs, asked.steps, fade=draws)
    return Guided(rollout, guide, rule)


def _agents(settings: Settings, path: Path, rollout: Rollout) -> Agent:
    """One guide for each seed of the run. Raises Mistake where they were made for other spaces,
    or act by what they remember."""
    made = read_settings(path)
    world = rollout.world.spec
    spec = dataclasses.replace(world, envs=made.envs, iterations=iterations(made))
    shapes = jax.eval_shape(lambda: create_agent(made, spec))
    try:
        agent, _ = checkpoint.load_part(folder.checkpoints(path), "agent", shapes)
    except Mistake as error:
        raise Mistake(f"{path} cannot guide in {settings.name}: {error}") from error
    agent.needs_no_memory("take another guide")
    which = jnp.asarray([i % len(made.seeds) for i in range(len(settings.seeds))])
    state: Any = jax.tree.map(lambda x: x[which], agent.state)
    return dataclasses.replace(agent, state=state, strategy=settings.inside)
