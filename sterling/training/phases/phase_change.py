"""Change from one phase of a run to the next: agents and counters stay, the source is replaced.

If a phase names neither world nor log, the source stays as well, with its replay buffer.
"""

from __future__ import annotations

from typing import Any

import jax

from sterling import random_keys
from sterling.experience.replay.replay_buffer import Replay, resize_replay
from sterling.training.agent import Agent, create_agent
from sterling.training.assembly import run_dataset
from sterling.training.assembly.build_run import (
    build_first_phase,
    log_source,
    make_world,
    mix_with_log,
    problem_spec,
    source_builder,
    training_purpose,
)
from sterling.training.config.settings import Settings
from sterling.training.field_schedules import FieldSchedules
from sterling.training.loop import Run
from sterling.training.phases.phase_sequence import PlannedPhase, plan_phases
from sterling.training.schedule_effect import check_schedule_effect
from sterling.types import Mistake, Spec


def check_phases(settings: Settings) -> None:
    """Raise Mistake if a later phase cannot take over from the one before, before any training."""
    if settings.phases:
        build_in_phase(settings, len(plan_phases(settings)) - 1, at=0).source.close()


def build_in_phase(settings: Settings, phase: int, at: int) -> Run:
    """Return a run with the shapes that it has in a phase (0: the first), to be filled from a
    checkpoint; ``at`` as in :func:`~sterling.training.assembly.build_run.build_first_phase`."""
    run = build_first_phase(settings, warm=False, at=at)
    check_schedule_effect(run)
    for number, part in enumerate(plan_phases(settings)[1 : phase + 1], 2):
        try:
            run = enter_phase(part, run, warm=False, at=at)
            check_schedule_effect(run)
        except Mistake as error:
            raise Mistake(f"phase {number}: {error}") from error
    return run


def enter_phase(part: PlannedPhase, run: Run, *, warm: bool = True, at: int = 0) -> Run:
    """Return the run at the beginning of its next phase. The agents themselves act in the warm-up
    of a replay buffer (Zhou 2024, WSRL). Sources use the new phase's fields (discount, n-step).

    Raise Mistake if the world has other spaces, or if changed fields alter the agents' shapes.
    """
    settings = part.settings
    agent = run.agent.with_fields(settings.config, part.fields)
    agent = agent.with_schedules(FieldSchedules.from_spans(part.schedules), part.begin)
    if part.keeps and agent.needs == run.agent.needs:
        _check_state_shapes(part, agent, run.source.worlds[0].spec)
        return Run(agent, run.source, run.seeds, run.iteration)
    run.source.close()
    if not part.acts:
        spec, source_of = log_source(settings)
        _check_state_shapes(part, agent, spec)
        return Run(agent, source_of(run.seeds, agent), run.seeds, run.iteration)
    world = make_world(settings, training_purpose(at or (part.begin if part.source else 0)))
    _check_spaces(settings, run, world.spec)
    _check_state_shapes(part, agent, problem_spec(settings, world))
    source = source_builder(settings, world, part.room)(
        random_keys.for_seeds(run.seeds, "source", part.source), agent
    )
    if warm and not part.keeps:
        source = source.warm_up(
            agent, random_keys.for_seeds(run.seeds, "warm", part.source), chance=False
        )
    source = mix_with_log(settings, source, world.spec)
    if part.keeps:
        source = _take_over_source(part, run.source, source)
    return Run(agent, source, run.seeds, run.iteration)


def _check_spaces(settings: Settings, run: Run, spec: Spec) -> None:
    """Raise Mistake if the previous phase's world had other spaces."""
    for before in (world.spec for world in run.source.worlds):
        for name, word in (("obs", "observations"), ("action", "actions")):
            own, its = getattr(before, name), getattr(spec, name)
            if not run_dataset.are_spaces_alike(own, its):
                raise Mistake(f"{settings.name} has {word} {its}, and the agents were made for "
                              f"{own}. All phases need worlds with the same spaces.")  # fmt: skip
        if before.unseen != spec.unseen:
            raise Mistake(f"{settings.name} hides {', '.join(spec.unseen) or 'nothing'} from "
                          "policies, and the previous world hides "
                          f"{', '.join(before.unseen) or 'nothing'}. All phases need worlds with "
                          "the same spaces.")  # fmt: skip


def _check_state_shapes(part: PlannedPhase, agent: Agent, spec: Spec) -> None:
    """Raise Mistake if changed fields alter the shapes of the agents' state."""
    shaping = [x for x, value in part.fields.items() if not isinstance(value, float)]
    if not shaping:
        return
    made = jax.eval_shape(lambda: create_agent(part.settings, spec).state)
    if _shapes_and_types(made) != _shapes_and_types(agent.state):
        names = ", ".join(shaping)
        raise Mistake(f"{names} would change the agents' shapes. Leave it out of then.")


def _shapes_and_types(tree: Any) -> Any:
    leaves, form = jax.tree.flatten(tree)
    return form, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _take_over_source(part: PlannedPhase, before: Any, fresh: Any) -> Any:
    """Return the source ``fresh`` with the replay rows of ``lived``, as if saved and loaded."""
    saved = before.to_checkpoint()
    form = _resized_like(saved, fresh.to_checkpoint())
    if _shapes_and_types(saved)[1] != _shapes_and_types(form)[1]:
        names = ", ".join(part.fields)
        raise Mistake(f"{names} would change the shapes of the replay buffer, which this phase "
                      "keeps. Name its environment to begin with an empty one.")  # fmt: skip
    whole = jax.tree.unflatten(jax.tree.structure(form), jax.tree.leaves(saved))
    return whole.from_checkpoint(fresh)


def _resized_like(held: Any, tree: Any) -> Any:
    """Resize the replay buffer in ``tree`` to the capacity of the one in ``held``."""
    found = jax.tree.leaves(held, is_leaf=lambda x: isinstance(x, Replay))
    kept = next((each for each in found if isinstance(each, Replay)), None)
    return tree if kept is None else resize_replay(tree, {"ring/words": kept.ring.words.shape})
