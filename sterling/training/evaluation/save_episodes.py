"""Write a run's last evaluation episodes to its folder."""

from __future__ import annotations

import contextlib
from pathlib import Path

from sterling.report.episodes.episodes_file import (
    EvaluatedEpisodes,
    merge_episodes,
    read_episodes,
    write_episodes,
)
from sterling.system.terminal_messages import print_notice
from sterling.types import Mistake


def save_episodes(folder: Path, made: EvaluatedEpisodes) -> None:
    """Write the episodes. A disk without space costs a line and not the run."""
    try:
        write_episodes(folder, made)
    except OSError as error:
        print_notice(f"the evaluation's episodes were not written to {folder} ({error})")


def save_merged_episodes(folder: Path, parts: list[Path], seeds: list[int]) -> None:
    """Write the episodes of a run's parts as the run's own, if all parts have the final ones."""
    found = []
    for part in parts:
        with contextlib.suppress(Mistake):  # damaged; `sterling show` can make them again
            found.append(read_episodes(part))
    whole = [one for one in found if one is not None and one.facts.get("final")]
    if len(whole) == len(parts):
        save_episodes(folder, merge_episodes(whole, seeds))
