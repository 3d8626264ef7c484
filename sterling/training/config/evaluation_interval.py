"""The interval between evaluations if options need one and the user says nothing."""

from __future__ import annotations

import dataclasses

from sterling.system.terminal_messages import print_notice
from sterling.training.config.settings import Settings
from sterling.training.phases.phase_sequence import counts_updates
from sterling.types import Mistake

EVALUATIONS_PER_RUN = 20


def needs_evaluations(settings: Settings) -> list[str]:
    """Return the names of the set options that look at the periodic evaluations."""
    set_ones = {
        "stop_at": settings.stop_at is not None,
        "patience": settings.patience > 0,
        "keep": bool(settings.keep),
    }
    return [name for name, is_set in set_ones.items() if is_set]


def check_stop_options(settings: Settings) -> None:
    """Raise Mistake if options need evaluations and the run has none."""
    names = needs_evaluations(settings)
    if not names or settings.evaluate_episodes or settings.holds_out_texts:
        return
    remedy = "evaluate_episodes is 0. Give evaluate_episodes=N (--evaluate-episodes N)"
    if settings.speech is not None and not settings.environment:
        remedy = "the run has none. Give held_out=0.1 (--held-out 0.1), a share of the texts"
    raise Mistake(f"{', '.join(names)} need evaluations, and {remedy}.")


def with_evaluation_interval(settings: Settings) -> Settings:
    """Return the settings, with an interval between evaluations if options need one and there is
    none; a notice says which. Runs that count updates have one by default."""
    names = needs_evaluations(settings)
    if not names or settings.evaluate_every or counts_updates(settings):
        return settings
    every = max(settings.budget // EVALUATIONS_PER_RUN, 1)
    print_notice(
        f"the policies are evaluated every {every:,} {settings.unit} for {', '.join(names)}; "
        "--evaluate-every N changes that"
    )
    return dataclasses.replace(settings, evaluate_every=every)
