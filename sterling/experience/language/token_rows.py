"""Convert lines of conversations (what one seat heard and said) to a record ``(seed, row, token)``.

A line has a row for each of its contexts, most have one. ``obs`` is a token and ``action`` the one
that follows it; ``mask`` marks the actions that the model generated itself. A turn's reward is at
its last token; ``discount`` is 0 at the end of a line whose scene is over. An answer cut at its
length limit has had its verdict, so only a context that was too short leaves 1, as does one that
another context of the line follows. ``extras`` of each token: ``log_prob`` under the policy that
generated it, ``version``, how many updates that policy had had, ``temperature``, at which it was
sampled, and ``turn``, its number in the line. Of each row: ``rows_before``, how many rows of its
line come before it, ``group`` (rows of one group answer the same question from the same seat),
``score`` (the sum of the line's rewards), ``right`` (the answer is right), ``cut`` (the line, or an
answer in it, exceeded its length limit) and ``valid`` (False: the row is padding, or its scene
failed); of batches that are stored also ``named``: see
:mod:`sterling.experience.language.raw_rewards`. If the terms of the reward are normalised one by
one, ``part`` ``(term, 2)`` has each term's value and weight, 0 where it does not apply.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from sterling.experience.language.raw_rewards import RawRewards
from sterling.language.engine.transcript import Transcript
from sterling.language.scene_dialogue import ChatSettings
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


def to_record(
    seeds: Sequence[GroupedLines], voice: ChatSettings, count: int, raw: RawRewards | None = None
) -> Record:
    """Convert every seed's lines to ``count`` rows of ``voice.context - 1`` token pairs; with
    ``raw`` the named rewards of their turns, too."""
    parts = [_to_arrays(rows, voice, count) for rows in seeds]
    if raw is not None:
        for part, rows in zip(parts, seeds, strict=True):
            part["named"] = _named_rewards(rows, raw, count)
    arrays = {name: jnp.asarray(np.stack([part[name] for part in parts])) for name in parts[0]}
    fields = ("ids", "reward", "discount", "last", "mask")
    return Record(
        obs=arrays["ids"][..., :-1],
        action=arrays["ids"][..., 1:],
        reward=arrays["reward"],
        discount=arrays["discount"],
        next_obs=None,
        last=arrays["last"],
        mask=arrays["mask"],
        extras={name: x for name, x in arrays.items() if name not in fields},
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
        "version": np.zeros(shape, np.int32),
        "temperature": np.zeros(shape, np.float32),
        "turn": np.zeros(shape, np.int32),
        "rows_before": np.zeros(count, np.int32),
        "group": np.full(count, count - 1, np.int32),
        "score": np.zeros(count, np.float32),
        "right": np.zeros(count, bool),
        "cut": np.zeros(count, bool),
        "valid": np.zeros(count, bool),
    }
    if voice.rule.each:
        made["part"] = np.zeros((count, voice.rule.term_count, 2), np.float32)
    row = 0
    for line, group in zip(rows.lines, rows.groups, strict=True):
        contexts = line.contexts
        made["group"][row : row + len(contexts)] = group
        if not line.failed and line.turns:
            _write_line(made, row, line, voice.temperature)
            if voice.rule.each:
                made["part"][row : row + len(contexts)] = voice.rule.terms(line.verdicts)
        row += len(contexts)
    return made


def _named_rewards(rows: GroupedLines, raw: RawRewards, count: int) -> np.ndarray:
    made, row = raw.blank(count), 0
    for line in rows.lines:
        verdicts = line.verdicts if line.usable else ()
        for turn, verdict in enumerate(verdicts):
            raw.write(made[row + line.context_of(turn)], turn, verdict)
        row += len(line.contexts)
    return made


def _write_line(made: dict[str, np.ndarray], row: int, line: Transcript, warmth: float) -> None:
    """Write one line into as many rows as it has contexts, each up to the last token that the model
    generated."""
    rows = slice(row, row + len(line.contexts))
    for before, part in enumerate(line.contexts):
        length = _write_context(made, row + before, line, part)
        made["discount"][row + before, length - 2] = float(line.full or part.stop < len(line.ids))
        made["rows_before"][row + before] = before
    made["temperature"][rows] = np.where(made["mask"][rows], warmth, 0.0)
    made["score"][rows], made["right"][rows] = line.reward, line.right
    made["cut"][rows], made["valid"][rows] = line.cut, True
    own, turns = np.array(line.own), np.array(line.turn)
    for turn, verdict in enumerate(line.verdicts):
        last, context = int(np.flatnonzero(own & (turns == turn))[-1]), line.context_of(turn)
        made["reward"][row + context, last - line.starts[context] - 1] = verdict.reward


def _write_context(made: dict[str, np.ndarray], row: int, line: Transcript, part: slice) -> int:
    """Write one context of a line into its row; return its length in tokens."""
    own = np.array(line.own[part])
    length = int(np.flatnonzero(own)[-1]) + 1
    pairs, after = slice(0, length - 1), slice(part.start + 1, part.start + length)
    made["ids"][row, :length] = line.ids[part][:length]
    made["mask"][row, pairs] = own[1:length]
    for name in ("log_prob", "version", "turn"):
        made[name][row, pairs] = getattr(line, name)[after]
    made["last"][row, length - 2] = True
    return length
