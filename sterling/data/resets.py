"""Successors that belong to another episode: the most repeated bug of logged experience.

A world that resets itself answers the last step with the *next* episode's first observation. Such
a successor shows itself twice: it is equal to the next episode's first observation, and it is a
jump, far longer than the steps of its episode. Both are asked for: episodes that were cut out of
one long stream are continuous, and nothing is wrong with them. Where an episode moved fast, or
ended near to where others begin, its jump is a short one; so the file is asked as a whole whether
its successors jump, and if they do all that are equal count.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sterling.data import spaces
from sterling.data.columns import Block
from sterling.data.dataset import Dataset
from sterling.data.findings import COPY, GIVE_UP, Finding

FAR = 3.0  # times the longest step of its episode
OFTEN = 0.1  # share of jumps among equal successors from which all of them cross a reset; of one
# stream that was cut up few are jumps, by chance
INSIDE = 10.0  # times the episode's 0.9 quantile of steps, for a reset that was not recorded


class Resets:
    """Looks at blocks in turn, and remembers last successors until all were seen."""

    def __init__(self, dataset: Dataset):
        self._names = [
            name
            for name, part in spaces.parts("obs", dataset.obs_space).items()
            if np.dtype(part.dtype).kind == "f"
        ]
        self._waiting: tuple[int, float, np.ndarray] | None = None  # episode, jump, successor
        # episode and jump, where the successor is the first observation of the next one
        self._equal: list[tuple[int, float]] = []

    def look(self, dataset: Dataset, block: Block, before: int) -> Iterator[Finding]:
        """What is found in some episodes, the first of which has number ``before``."""
        if not self._names:
            return
        columns = [block.arrays[name] for name in self._names]
        flat = np.concatenate([x.reshape(len(x), -1) for x in columns], 1).astype(np.float32)
        flat[~np.isfinite(flat)] = np.nan  # where nothing can be told
        with np.errstate(invalid="ignore"):
            finite = flat[np.isfinite(flat).all(1)]
            # squares of large numbers, and sums of many, need more than 32 bits
            wide = finite.std(0, dtype=np.float64) + 1e-8
            scale = (wide if len(finite) else np.ones(flat.shape[1])).astype(np.float32)
            steps = np.abs(np.diff(flat, axis=0) / scale).mean(1)
        begins = block.begins + np.arange(len(block.lengths))
        starts = flat[begins]
        spread = float(np.abs((starts - starts.mean(0)) / scale).mean(1).max(initial=0))
        for number, (begin, length) in enumerate(zip(begins, block.lengths, strict=True)):
            self._compare(flat[begin])
            own = steps[begin : begin + length]
            longest = np.max(own[:-1], initial=0.0)
            jump = float(own[-1] / (longest + 1e-12)) if length > 1 else np.nan  # cannot be told
            self._waiting = (before + number, jump, flat[begin + length]) if length else None
            inside = self._inside(own[:-1], flat[begin : begin + length], starts, scale, spread)
            if inside is not None:
                said = "the next observation jumps to where episodes begin: a reset within?"
                yield Finding("warning", "reset", said, before + number, inside)

    def _compare(self, first: np.ndarray) -> None:
        """Remember the episode that waits if its successor is the first observation of this one."""
        if self._waiting is not None and np.array_equal(self._waiting[2], first):
            self._equal.append(self._waiting[:2])

    def findings(self, dataset: Dataset) -> Iterator[Finding]:
        """The successors that cross a reset, once all episodes were looked at."""
        jumps = [jump for _, jump in self._equal if np.isfinite(jump)]
        all_cross = bool(jumps) and np.mean(np.array(jumps) > FAR) >= OFTEN
        for episode, jump in self._equal:
            if not (all_cross or jump > FAR):
                continue
            said = f"the last next_obs is the first observation of episode {episode + 1}"
            fix = COPY if dataset.ended[episode] else GIVE_UP
            step = int(dataset.lengths[episode]) - 1
            yield Finding("error", "next_obs", said, episode, step, fix)

    @staticmethod
    def _inside(
        steps: np.ndarray, flat: np.ndarray, starts: np.ndarray, scale: np.ndarray, spread: float
    ) -> int | None:
        """The step of an episode that leads to where episodes begin, if one does and jumps."""
        if len(steps) < 20 or len(starts) < 5:
            return None
        at = int(np.argmax(steps))
        if not steps[at] > INSIDE * (np.quantile(steps, 0.9) + 1e-12):
            return None
        away = np.abs((flat[at + 1] - starts.mean(0)) / scale).mean()
        return at if away <= spread and at > 0 else None
