"""What dataset to make; and the seeds and progress messages that all its makers share."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sterling.training.saving import run_folder

Say = Callable[[str], None]  # called with each progress message


@dataclasses.dataclass(frozen=True)
class DatasetOrder:
    """What dataset to make."""

    environment: str
    quality: str
    size: int  # rows
    seed: int = 0
    agent: str = "ppo"
    steps: int = 1_000_000  # training steps of the agent
    env_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    workers: int = 1  # processes for scripted collections; they do not change the data

    @property
    def command(self) -> str:
        """Return the command that makes the same dataset."""
        command = f"sterling data make {self.environment} --quality {self.quality}"
        command += f" --size {self.size} --seed {self.seed}"
        if self.quality not in ("random", "scripted"):
            command += f" --agent {self.agent} --steps {self.steps}"
        return command + "".join(f" --env {key}={value}" for key, value in self.env_options.items())


def say_nothing(line: str) -> None:
    """Ignore a progress message."""


def code_commit() -> str:
    """Return the git commit of this code, with "-dirty" if it was changed; "" without git."""
    found = run_folder.git_facts(Path(__file__).parents[1]) or {}
    return found.get("commit", "") + ("-dirty" if found.get("dirty") else "")


def derive_seed(seed: int, purpose: str) -> int:
    """Return a 31-bit seed for each purpose, so that no two purposes see the same episodes."""
    return zlib.crc32(f"factory/{seed}/{purpose}".encode()) & 0x7FFFFFFF
