"""The named rewards of every turn, as their verifiers gave them, in a run's stored batches.

The names are not known before the first verdicts, and a waiting batch and a checkpoint have a fixed
form. So a batch that is to be stored has room for ``MOST_NAMES`` names of every turn
(``extras["named"]``, NaN where a name does not apply), and :class:`RawRewards` knows which name has
which place. The file has an array ``reward/NAME`` ``(seed, row, turn)`` for each of its names. A
replay may combine them by another rule (:func:`combine`).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError, safe_open

from sterling.language.named_rewards import RewardRule
from sterling.language.task import Verdict
from sterling.statistics.scores.headline import NAMED_REWARD
from sterling.types import Mistake, Record

MOST_NAMES = 16
COUNT = "named_rewards"  # array of a file: how many names it has (0: its verdicts had none)

Raw = Mapping[str, Float[np.ndarray, "seed row turn"]]  # by name; NaN: it does not apply


@dataclasses.dataclass(eq=False)
class RawRewards:
    """The place of each name among those of ``named``, in the order in which they were found."""

    turns: int  # most turns of a seat
    names: list[str] = dataclasses.field(default_factory=list)

    def blank(self, rows: int) -> Float[np.ndarray, "row turn name"]:
        """Return the rewards of rows that have none."""
        return np.full((rows, self.turns, MOST_NAMES), np.nan, np.float32)

    def write(self, row: Float[np.ndarray, "turn name"], turn: int, verdict: Verdict) -> None:
        """Write the named rewards of a turn into its row; Mistake if there is no room for them."""
        if turn >= self.turns:
            said = f"a seat had {turn + 1} turns, and its world declares turns={self.turns}"
            raise Mistake(f"dump: {said}. Correct the world's `turns`.")
        for name, reward in getattr(verdict, "rewards", {}).items():
            row[turn, self._place(name)] = reward

    def from_file(self, raw: Raw, seeds: int, rows: int) -> Float[np.ndarray, "seed row turn name"]:
        """Return the rewards of a stored batch, each name at this run's place."""
        found = np.repeat(self.blank(rows)[None], seeds, 0)
        for name, each in raw.items():
            if each.shape[-1] > self.turns:
                said = f"pool has answers of {each.shape[-1]} turns, and the environment "
                raise Mistake(f"{said}{self.turns}. Use batches of the same environment.")
            found[..., : each.shape[-1], self._place(name)] = each
        return found

    def to_file(self, named: Any) -> dict[str, np.ndarray]:
        """Return the arrays ``reward/NAME`` of a batch's ``named``, of the names that it has, and
        their number."""
        arrays = {name: np.asarray(named)[..., place] for place, name in enumerate(self.names)}
        found = {
            f"{NAMED_REWARD}{name}": np.ascontiguousarray(each)
            for name, each in arrays.items()
            if not np.isnan(each).all()
        }
        return {**found, COUNT: np.array(len(found), np.int32)}

    def _place(self, name: str) -> int:
        if name not in self.names:
            if len(self.names) == MOST_NAMES:
                said = f"dump stores at most {MOST_NAMES} named rewards; a further one is {name!r}"
                raise Mistake(f"{said}. Return fewer names, or leave out dump.")
            self.names.append(name)
        return self.names.index(name)


def split_raw(arrays: Mapping[str, np.ndarray]) -> Raw:
    """Return the named rewards among a file's arrays."""
    return {
        name.removeprefix(NAMED_REWARD): each
        for name, each in arrays.items()
        if name.startswith(NAMED_REWARD)
    }


def combine(batch: Record, raw: Raw, rule: RewardRule) -> Record:
    """Return a stored batch with the named rewards of every turn combined by ``rule``, and their
    terms if these are normalised one by one. Turns whose verdict is one number without a name keep
    it."""
    reward, turn, mask = (np.array(x) for x in (batch.reward, batch.extras["turn"], batch.mask))
    part = np.zeros((*reward.shape[:2], rule.term_count, 2), np.float32)
    valid, before = (np.asarray(batch.extras[name]) for name in ("valid", "rows_before"))
    verdicts: dict[tuple[int, int], list[Verdict]] = {}  # of each line, by its first row
    for seed, row in np.argwhere(valid).tolist():
        own = verdicts.setdefault((seed, row - int(before[seed, row])), [])
        for number in np.unique(turn[seed, row][mask[seed, row]]):
            named = {name: float(each[seed, row, number]) for name, each in raw.items()}
            named = {name: x for name, x in named.items() if not np.isnan(x)}
            last = np.flatnonzero(mask[seed, row] & (turn[seed, row] == number))[-1]
            reward[seed, row, last] = rule(named) if named else reward[seed, row, last]
            own.append(Verdict(float(reward[seed, row, last]), "", rewards=named))
    for seed, row in np.argwhere(valid).tolist() if rule.each else ():
        part[seed, row] = rule.terms(verdicts[seed, row - int(before[seed, row])])
    extras = {**batch.extras, "score": jnp.asarray(_line_scores(reward, before))}
    extras |= {"part": jnp.asarray(part)} if rule.each else {}
    return dataclasses.replace(batch, reward=jnp.asarray(reward), extras=extras)


def _line_scores(
    reward: Float[np.ndarray, "seed row token"], rows_before: np.ndarray
) -> Float[np.ndarray, "seed row"]:
    """Return the sum of rewards of each row's line (equations/line_rows.py)."""
    first = np.arange(reward.shape[1]) - rows_before
    seed = np.arange(len(reward))[:, None]
    total = np.zeros(first.shape)
    np.add.at(total, (seed, first), reward.sum(-1, dtype=np.float64))
    return total[seed, first].astype(np.float32)


def names_in_folder(folder: Path) -> set[str] | None:
    """Return the names of all rewards in a folder's batches; None if a batch was written without
    named rewards. Damaged files, which are reported when they are read, have none."""
    found = set[str]()
    for path in sorted(folder.glob("*.safetensors")):
        with contextlib.suppress(SafetensorError), safe_open(path, "numpy") as file:
            stored = set(file.keys())
            if COUNT not in stored:
                return None
            found |= set(split_raw(dict.fromkeys(stored, np.zeros(0))))
    return found


def check_rule(option: str, folder: Path, rule: RewardRule) -> None:
    """Raise Mistake if there is a rule, and the batches of ``option``'s folder have no named
    rewards, or none of the rule's."""
    if not rule.text:
        return
    names = names_in_folder(folder)
    if not names:
        raise Mistake(
            f"the batches of {option}={folder} hold no named rewards that rewards could combine: "
            "their verdicts were plain numbers, or they are older. Leave out rewards."
        )
    rule.check_names(names)
    rule.report_missing(names)
