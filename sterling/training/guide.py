"""An earlier run as a guide."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from sterling.actor import Actor
from sterling.experience.guided import Expansion, Guided, JumpStart
from sterling.experience.rollout import Rollout
from sterling.training import checkpoint, folder
from sterling.training.agent import Agent, create_agent
from sterling.training.phases import iterations, own_iterations, warmup_steps
from sterling.training.settings import Settings
from sterling.training.stored import read_settings
from sterling.types import Mistake, Spec, World


def guided(
    settings: Settings, world: World, length: int, begin: Callable[[Actor], Rollout], agent: Actor
) -> Rollout | Guided:
    """The rollout that ``begin(actor)`` makes, of ``length`` steps, with the settings' guide, or as
    ``agent`` lives it alone where there is none."""
    asked = settings.guide
    if asked is None:
        return begin(agent)
    guide = _agents(settings, Path(asked.path), world.spec)
    if asked.how == "expansion":
        return Guided.create(begin, agent, guide, Expansion(asked.temperature))
    rounds = own_iterations(settings)
    draws = warmup_steps(settings) // settings.envs + rounds * length
    rule = JumpStart.create(world.seeds, world.spec.envs, asked.steps, fade=draws)
    return Guided.create(begin, agent, guide, rule)


def _agents(settings: Settings, path: Path, world: Spec) -> Agent:
    """One guide for each seed of the run. Raises Mistake where they were made for other spaces."""
    made = read_settings(path)
    spec = dataclasses.replace(world, envs=made.envs, iterations=iterations(made))
    shapes = jax.eval_shape(lambda: create_agent(made, spec))
    try:
        agent, _ = checkpoint.load_part(folder.checkpoints(path), "agent", shapes)
    except Mistake as error:
        raise Mistake(f"{path} cannot guide in {settings.name}: {error}") from error
    which = jnp.asarray([i % len(made.seeds) for i in range(len(settings.seeds))])
    state: Any = jax.tree.map(lambda x: x[which], agent.state)
    return dataclasses.replace(agent, state=state, strategy=settings.inside)
