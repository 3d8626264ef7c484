"""Options that stop a run early, keep its best policy, or choose between best and last policy."""

from __future__ import annotations

import argparse
from typing import Any

from sterling.commands.options import option_values


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that stop a new run early or keep its best policy."""
    about = "by periodic evaluations, for all seeds together; see docs/steering.md"
    group = parser.add_argument_group("stopping early", about)
    add_stop_options(group.add_argument)
    beside = "also keep the policy of each seed's best evaluation; the last one stays the result"
    group.add_argument("--keep", choices=("best", "last"), help=beside)


def add_stop_options(add: Any) -> None:
    """Add the options that stop a run early."""
    level = "stop when the mean return over the seeds reaches RETURN"
    add("--stop-at", type=option_values.number_or_off, metavar="RETURN", help=level)
    waits = "stop after N evaluations without a better mean return"
    add("--patience", type=option_values.integer_or_off, metavar="N", help=waits)
    worked = "stop after this time of work: minutes, or text such as 1h30m"
    add("--time-budget", metavar="TIME", help=worked)


def add_policy_option(add: Any) -> None:
    """Add the option that chooses the last or the best policy."""
    kept = "the last policy, or the best one of a run that was trained with --keep best (last)"
    add("--policy", choices=("last", "best"), help=kept)
