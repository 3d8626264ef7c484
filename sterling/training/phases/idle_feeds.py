"""A notice of what is never learned from: feeds that begin after the run's last iteration."""

from __future__ import annotations

from sterling.system.terminal_messages import print_notice
from sterling.training.config.settings import Settings
from sterling.training.phases.phase_sequence import (
    acts_in_world,
    learner_needs,
    steps_per_iteration,
    total_iterations,
    warmup_steps,
)


def report_idle_feeds(settings: Settings) -> None:
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
