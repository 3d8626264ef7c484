"""The shapes of a run's agents, for loading what was saved; nothing is compiled."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from sterling.nets.encoding.encoder_choice import find_encoder
from sterling.training.agent import Agent
from sterling.training.assembly.build_run import create_agent, make_world
from sterling.training.assembly.run_dataset import SpacesWorld
from sterling.training.config.settings import Settings
from sterling.training.field_schedules import FieldSchedules
from sterling.training.phases.phase_sequence import phases_reached, plan_phases, total_iterations
from sterling.types import Spec


def agent_template(settings: Settings, stopped: dict[str, Any] | None) -> Agent:
    """Return the agents' shapes, for loading; ``stopped``: of the result of a stopped run."""
    if settings.speech is None:
        spec = _agent_spec(settings)

        def create() -> Agent:
            agent, reached = create_agent(settings, spec), phases_reached(stopped)
            for part in plan_phases(settings)[1:reached] if settings.phases else ():
                agent = agent.with_fields(part.settings.config, part.fields)
                agent = agent.with_schedules(FieldSchedules.from_spans(part.schedules), part.begin)
            return agent.without_schedules()

        shapes: Agent = jax.eval_shape(create)  # nothing is compiled
        return shapes
    from sterling.training.language.base_model import learner_template

    return learner_template(settings)


def _agent_spec(settings: Settings) -> Spec:
    """Return the agents' problem, even if their log no longer exists."""
    known: Any = {"envs": settings.envs, "iterations": total_iterations(settings)}
    known["encoder"] = find_encoder(settings.encoder)
    if settings.spaces:
        return dataclasses.replace(SpacesWorld(settings.spaces).spec, **known)
    world = make_world(settings, "evaluate", 1)
    try:
        return dataclasses.replace(world.spec, **known)
    finally:
        world.close()
