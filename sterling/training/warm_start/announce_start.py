"""Say what a run's agents will start from, before other processes create them."""

from __future__ import annotations

import jax

from sterling.system.terminal_messages import print_progress
from sterling.training.agent import create_agent
from sterling.training.assembly.build_run import make_world, problem_spec
from sterling.training.assembly.run_dataset import world_spaces
from sterling.training.config.settings import Settings
from sterling.training.warm_start.start_agent import plan_start


def announce_start(settings: Settings) -> None:
    """Print what the agents will take from the settings' ``init``; raise Mistake if it does not
    fit. Without ``init`` nothing happens."""
    if settings.init is None:
        return
    world = make_world(settings, "evaluate", 1) if settings.environment else None
    try:
        spec = problem_spec(settings, world)
        actions = None if world is None else world_spaces(world)[1]
    finally:
        if world is not None:
            world.close()
    agent = jax.eval_shape(lambda: create_agent(settings, spec))
    print_progress(plan_start(settings, spec, agent, actions)[1])
