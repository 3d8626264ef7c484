"""What a run of an agent program is worth that failed before it gave a reward."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from sterling.language.engine.transcript import Transcript
from sterling.language.task import PROGRAM_FAILED


def give_lowest_rewards(group: Sequence[Transcript]) -> None:
    """Give the failed runs of a group (answers to one question) the lowest reward of its others,
    and the lowest of each named one; 0 if all have failed. So it never pays to make a program
    fail. Runs whose world has a fixed reward for that (``--failed-reward``) keep it."""
    others = [line for line in group if line.usable and not _has_failed(line)]
    if not others:
        return
    names = {name for line in others for name in line.rewards}
    lowest = dataclasses.replace(
        PROGRAM_FAILED,
        reward=min(line.reward for line in others),
        rewards={
            name: min(line.rewards[name] for line in others if name in line.rewards)
            for name in sorted(names)
        },
    )
    for line in filter(_has_failed, group):
        line.verdicts = (*line.verdicts[:-1], lowest)


def _has_failed(line: Transcript) -> bool:
    return bool(line.verdicts) and line.verdicts[-1] is PROGRAM_FAILED
