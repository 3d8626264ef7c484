"""Check that a schedule has an effect: that acting or learning reads the field which it changes."""

from __future__ import annotations

import jax
from jax.interpreters import partial_eval

from sterling.algorithms.user_algorithm import short_name
from sterling.training.loop import Run, iterate
from sterling.types import Mistake

CONFIG_PATH = ".agent.state.config."  # of the fields' leaves in a run


def check_schedule_effect(run: Run) -> None:
    """Raise :class:`Mistake` for a schedule of a field that an iteration does not read, such as the
    initial value of something learned. Only a traced source's program can be checked."""
    if run.agent.schedules is None or not run.source.traced:
        return
    unread = set(run.agent.schedules.names) & _unread_fields(run)
    if unread:
        raise Mistake(
            f"{short_name(run.agent.algorithm)} does not read {', '.join(sorted(unread))} while it "
            "trains with these settings, so a schedule has no effect. Give one number."
        )


def _unread_fields(run: Run) -> set[str]:
    """Return the leaves of the Config on which nothing that an iteration computes depends."""
    bare = Run(run.agent.without_schedules(), run.source, run.seeds, run.iteration)
    closed, shapes = jax.make_jaxpr(iterate, return_shape=True)(bare)
    given, made = (
        [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
        for tree in (bare, shapes)
    )
    wanted = [CONFIG_PATH not in name for name in made]  # the fields themselves go through
    _, used = partial_eval.dce_jaxpr(closed.jaxpr, wanted)
    return {
        name.removeprefix(CONFIG_PATH)
        for name, read in zip(given, used, strict=True)
        if name.startswith(CONFIG_PATH) and not read
    }
