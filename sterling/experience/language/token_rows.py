"""Convert lines of conversations (token sequences of one seat) to a record ``(seed, row, token)``.

``obs`` is a token and ``action`` the one that follows it; ``mask`` marks the actions that the model
generated itself. A turn's reward is at its last token; ``discount`` is 0 at the end of a line whose
scene is over. An answer cut at its length limit has had its verdict, so only a context that was too
short leaves 1. ``extras``: ``log_prob`` of the token under the policy that generated it, ``turn``
its number, and for each row ``group`` (rows of one group answer the same question from the same
seat), ``score`` (the sum of its rewards), ``cut`` (the line, or an answer in it, exceeded its
length limit) and ``valid`` (False: the row is padding, or its scene failed).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from sterling.language.scene_dialogue import ChatSettings, Transcript
from sterling.types import Record


@dataclasses.dataclass(frozen=True)
class GroupedLines:
    """Lines, and the group number of each."""

    lines: list[Transcript]
    groups: list[int]

    @classmethod
    def from_groups(cls, groups: Sequence[Sequence[Transcript]]) -> GroupedLines:
        """Number one seed's groups: lines of one question and one seat form a group."""
        lines = [line for group in groups for line in group]
        seats = 1 + max((line.seat for line in lines), default=0)
        numbers = [n * seats + line.seat for n, group in enumerate(groups) for line in group]
        return cls(lines, numbers)


def to_record(seeds: Sequence[GroupedLines], voice: ChatSettings, count: int) -> Record:
    """Convert every seed's lines to ``count`` rows of ``voice.context - 1`` token pairs."""
    parts = [_to_arrays(rows, voice, count) for rows in seeds]
    arrays = {name: jnp.asarray(np.stack([part[name] for part in parts])) for name in parts[0]}
    names = ("log_prob", "turn", "group", "score", "cut", "valid")
    return Record(
        obs=arrays["ids"][..., :-1],
        action=arrays["ids"][..., 1:],
        reward=arrays["reward"],
        discount=arrays["discount"],
        next_obs=None,
        last=arrays["last"],
        mask=arrays["mask"],
        extras={name: arrays[name] for name in names},
    )


def _to_arrays(rows: GroupedLines, voice: ChatSettings, count: int) -> dict[str, np.ndarray]:
    shape = (count, voice.context - 1)
    made = {
        "ids": np.full((count, voice.context), voice.tokenizer.pad, np.int32),
        "reward": np.zeros(shape, np.float32),
        "discount": np.ones(shape, np.float32),
        "last": np.zeros(shape, bool),
        "mask": np.zeros(shape, bool),
        "log_prob": np.zeros(shape, np.float32),
        "turn": np.zeros(shape, np.int32),
        "group": np.full(count, count - 1, np.int32),
        "score": np.zeros(count, np.float32),
        "cut": np.zeros(count, bool),
        "valid": np.zeros(count, bool),
    }
    for row, (line, group) in enumerate(zip(rows.lines, rows.groups, strict=True)):
        made["group"][row] = group
        if not line.failed and line.turns:
            _write_line(made, row, line)
    return made


def _write_line(made: dict[str, np.ndarray], row: int, line: Transcript) -> None:
    """Write one line into its row, up to the last token that the model generated."""
    own = np.array(line.own)
    length = int(np.flatnonzero(own)[-1]) + 1
    made["ids"][row, :length] = line.ids[:length]
    pairs = slice(0, length - 1)
    made["mask"][row, pairs] = own[1:length]
    made["log_prob"][row, pairs] = line.log_prob[1:length]
    made["turn"][row, pairs] = line.turn[1:length]
    turns = np.array(line.turn)
    for turn, verdict in enumerate(line.verdicts):
        spoken = np.flatnonzero(own & (turns == turn))
        made["reward"][row, spoken[-1] - 1] = verdict.reward
    made["last"][row, length - 2] = True
    made["discount"][row, length - 2] = float(line.full)
    made["score"][row], made["cut"][row], made["valid"][row] = line.reward, line.cut, True
