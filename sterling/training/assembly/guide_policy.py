"""Load an earlier run's policies as a guide, and let them help to act."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from sterling.actor import Actor
from sterling.experience.rollouts.guided_rollout import (
    Expansion,
    GuidedRollout,
    JumpStart,
    Teaching,
)
from sterling.experience.rollouts.rollout import Rollout
from sterling.nets.encoding.encoder_choice import find_encoder
from sterling.problem.critic_only_obs import with_critic_obs
from sterling.training.agent import Agent, create_agent
from sterling.training.config.settings import Settings
from sterling.training.config.stored_settings import read_settings
from sterling.training.phases.phase_sequence import phase_iterations, total_iterations, warmup_steps
from sterling.training.saving import checkpoint, run_folder
from sterling.types import Mistake, Spec, World


def guided_rollout(
    settings: Settings, world: World, length: int, begin: Callable[[Actor], Rollout], agent: Actor
) -> Rollout | GuidedRollout:
    """Return the rollout ``begin(actor)``, of ``length`` steps per iteration, with the settings'
    guide; without a guide ``agent`` acts alone."""
    guide_settings = settings.guide
    if guide_settings is None:
        return begin(agent)
    guide = load_guides(settings, Path(guide_settings.path), world)
    if guide_settings.how == "expansion":
        return GuidedRollout.create(begin, agent, guide, Expansion(guide_settings.temperature))
    if guide_settings.how == "teacher":
        teaching = Teaching.create(warmup_steps(settings) // settings.envs)
        return GuidedRollout.create(begin, agent, guide, teaching)
    rounds = phase_iterations(settings)
    calls = warmup_steps(settings) // settings.envs + rounds * length
    rule = JumpStart.create(world.seeds, world.spec.envs, guide_settings.steps, fade=calls)
    return GuidedRollout.create(begin, agent, guide, rule)


def load_guides(settings: Settings, path: Path, world: Any) -> Agent:
    """Load one guide for each seed of the run: of the same seed, if there is one, else one of them
    in turn. Each observes what it was trained with, even if this run's policies observe less.
    Raise Mistake if they were made for other spaces."""
    settings_of_guide = read_settings(path)
    declared: Spec = getattr(world, "declared_spec", world.spec)
    spec = dataclasses.replace(
        with_critic_obs(declared, settings_of_guide.critic_obs, settings_of_guide.obs),
        envs=settings_of_guide.envs,
        iterations=total_iterations(settings_of_guide),
        encoder=find_encoder(settings_of_guide.encoder),
    )
    shapes = jax.eval_shape(lambda: create_agent(settings_of_guide, spec).without_schedules())
    try:
        agent, _ = checkpoint.load_subtree(run_folder.checkpoints_path(path), "agent", shapes)
    except Mistake as error:
        raise Mistake(f"{path} cannot be a guide in {settings.name}: {error}") from error
    theirs = list(settings_of_guide.seeds)  # by number, so that a seed alone has the same guide
    which = jnp.asarray(
        [theirs.index(s) if s in theirs else s % len(theirs) for s in settings.seeds]
    )
    state: Any = jax.tree.map(lambda x: x[which], agent.state)
    return dataclasses.replace(agent, state=state, strategy=settings.program_strategy)
