"""From one phase of a run to the next: the agents and the counters go over, the source does not.

Where a phase names neither world nor log, its source goes on as well, with what it has kept.
"""

from __future__ import annotations

from typing import Any

import jax

from sterling import keys
from sterling.experience.replay import as_large_as
from sterling.training import logbook
from sterling.training.agent import Agent, create_agent
from sterling.training.loop import Run
from sterling.training.phases import Part, parts
from sterling.training.settings import Settings
from sterling.training.start import (
    build,
    make_world,
    mixed,
    of_log,
    problem,
    source_maker,
    training_purpose,
)
from sterling.types import Mistake, Spec


def built(settings: Settings, phase: int, *, warm: bool, at: int = 0) -> Run:
    """A run as it begins or, not ``warm``, of the form that it has in a phase (0: the first), to be
    filled with what was saved; ``at`` as in :func:`~sterling.training.start.build`.

    Raises Mistake where a later phase cannot take over from the one before.
    """
    run = build(settings, warm=warm and not settings.phases, at=at)
    if warm and settings.phases:  # a later phase that cannot be is told before anything is learned
        _entered(settings, len(parts(settings)) - 1, run, at).source.close()
        run = build(settings, warm=True, at=at)
    return run if warm else _entered(settings, phase, run, at)


def _entered(settings: Settings, phase: int, run: Run, at: int) -> Run:
    """The form of a run in a phase."""
    for number, part in enumerate(parts(settings)[1 : phase + 1], 2):
        try:
            run = enter(part, run, warm=False, at=at)
        except Mistake as error:
            raise Mistake(f"phase {number}: {error}") from error
    return run


def enter(part: Part, run: Run, *, warm: bool = True, at: int = 0) -> Run:
    """The run as its next phase begins. Agents act in the warm-up of a replay themselves (Zhou
    2024, WSRL). Sources sum, weigh and discount by the numbers that losses have from now on.

    Raises Mistake where the world has other spaces, or fields change what goes over.
    """
    settings = part.settings
    agent = run.agent.with_fields(settings.config, part.fields)
    if part.keeps and agent.needs == run.agent.needs:
        _check_form(part, agent, run.source.worlds[0].spec)
        return Run(agent, run.source, run.seeds, run.iteration)
    run.source.close()
    if not part.acts:
        spec, source_of = of_log(settings)
        _check_form(part, agent, spec)
        return Run(agent, source_of(), run.seeds, run.iteration)
    world = make_world(settings, training_purpose(at or (part.begin if part.source else 0)))
    _check_spaces(settings, run, world.spec)
    _check_form(part, agent, problem(settings, world))
    source = source_maker(settings, world, part.room)(
        keys.at(run.seeds, "source", part.source), agent
    )
    if warm and not part.keeps:
        source = source.warm(agent, keys.at(run.seeds, "warm", part.source), chance=False)
    source = mixed(settings, source, world.spec)
    if part.keeps:
        source = _taken_over(part, run.source, source)
    return Run(agent, source, run.seeds, run.iteration)


def _check_spaces(settings: Settings, run: Run, spec: Spec) -> None:
    """Raises Mistake where agents have lived in a world with other spaces."""
    for before in (world.spec for world in run.source.worlds):
        for name, word in (("obs", "observations"), ("action", "actions")):
            own, its = getattr(before, name), getattr(spec, name)
            if not logbook.alike(own, its):
                raise Mistake(f"{settings.name} has {word} {its}, and the agents were made for "
                              f"{own}; phases need worlds with the same spaces")  # fmt: skip
        if before.unseen != spec.unseen:
            raise Mistake(f"{settings.name} leaves {', '.join(spec.unseen) or 'nothing'} unseen by "
                          "policies, and the world before another part; phases need worlds with "
                          "the same spaces")  # fmt: skip


def _check_form(part: Part, agent: Agent, spec: Spec) -> None:
    """Raises Mistake where fields shape what the agents have learned."""
    shaping = [x for x, value in part.fields.items() if not isinstance(value, float)]
    if not shaping:
        return
    made = jax.eval_shape(lambda: create_agent(part.settings, spec).state)
    if _form(made) != _form(agent.state):
        names = ", ".join(shaping)
        raise Mistake(f"{names} would shape anew what was learned; leave it out of then")


def _form(tree: Any) -> Any:
    leaves, form = jax.tree.flatten(tree)
    return form, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _taken_over(part: Part, lived: Any, fresh: Any) -> Any:
    """The source ``fresh`` with what ``lived`` has kept, as if that had been saved and read."""
    held = lived.stored()
    form = as_large_as(held, fresh.stored())
    if _form(held)[1] != _form(form)[1]:
        names = ", ".join(part.fields)
        raise Mistake(f"{names} would shape anew what was kept, with which this phase goes on; "
                      "name its environment, and it begins anew")  # fmt: skip
    whole = jax.tree.unflatten(jax.tree.structure(form), jax.tree.leaves(held))
    return whole.restored(fresh)
