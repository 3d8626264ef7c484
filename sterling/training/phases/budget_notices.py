"""Notices of what a run's budget leaves out: steps or updates that fill no iteration, and feeds
that begin after the last one."""

from __future__ import annotations

from sterling.system.terminal_messages import print_notice
from sterling.training.config.settings import Settings
from sterling.training.phases.phase_sequence import (
    PlannedPhase,
    acts_in_world,
    learner_needs,
    plan_phases,
    steps_per_iteration,
    total_iterations,
    warmup_steps,
)

ROUNDING = 0.05  # share of a budget that may stay unused without a notice


def report_budget(settings: Settings) -> None:
    """Print a line for each phase that uses much less than its budget, and for each of the
    learner's feeds that gives no batch in the whole run."""
    for phase in plan_phases(settings):
        _report_rounding(phase)
    _report_idle_feeds(settings)


def _report_rounding(phase: PlannedPhase) -> None:
    """Print how many steps or updates are made, if clearly fewer than were asked for, because only
    whole iterations are."""
    settings = phase.settings
    counted = phase.steps if phase.acts else phase.updates
    made, asked = counted(phase.end), phase.budget
    if made >= (1 - ROUNDING) * asked:
        return
    each, copies = phase.per_iteration, settings.envs
    spread = (
        f" ({each // copies:,} in each of {copies} environments)"
        if phase.acts and copies > 1
        else ""
    )
    print_notice(
        f"{settings.title}: {made:,} of {asked:,} {settings.unit} are made, since an iteration "
        f"takes {each:,}{spread}. The next budget is --{settings.unit} {made + each}."
    )


def _report_idle_feeds(settings: Settings) -> None:
    """Print a line for each of the learner's feeds that gives no batch in the whole run, with the
    budget with which it does."""
    needs, rounds = learner_needs(settings), total_iterations(settings)
    for feed in needs.feeds:
        if feed.times_due(rounds):
            continue
        if acts_in_world(settings):
            least = warmup_steps(settings) + (feed.after + 1) * steps_per_iteration(settings)
        else:
            least = needs.updates_of(feed.after + 1)
        print_notice(
            f"{settings.title}: {feed.learner} gets no batch in this run, which has {rounds:,} "
            f"iterations: its feed begins after {feed.after:,}. Use --{settings.unit} {least} or "
            "more."
        )
