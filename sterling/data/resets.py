"""Successors that belong to another episode: the most repeated bug of logged experience.

A world that resets itself answers the last step with the *next* episode's first observation. Such
a successor shows itself twice: it is equal to the next episode's first observation, and it is a
jump, far longer than the steps of its episode. Both are asked for: episodes that were cut out of
one long stream are continuous, and nothing is wrong with them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sterling.data import spaces
from sterling.data.columns import Block
from sterling.data.dataset import Dataset
from sterling.data.findings import COPY, GIVE_UP, Finding

FAR = 3.0  # times the longest step of its episode
INSIDE = 10.0  # times the episode's 0.9 quantile of steps, for a reset that was not recorded


class Resets:
    """Looks at blocks in turn; remembers the last successor of each for the next."""

    def __init__(self, dataset: Dataset):
        self._names = [
            name
            for name, part in spaces.parts("obs", dataset.obs_space).items()
            if np.dtype(part.dtype).kind == "f"
        ]
        self._waiting: tuple[int, float, np.ndarray] | None = None  # episode, jump, successor

    def look(self, dataset: Dataset, block: Block, before: int) -> Iterator[Finding]:
        """What is found in some episodes, the first of which has number ``before``."""
        if not self._names:
            return
        columns = [block.arrays[name] for name in self._names]
        flat = np.concatenate([x.reshape(len(x), -1) for x in columns], 1).astype(np.float32)
        flat[~np.isfinite(flat)] = np.nan  # where nothing can be told
        with np.errstate(invalid="ignore"):
            finite = flat[np.isfinite(flat).all(1)]
            scale = finite.std(0) + 1e-8 if len(finite) else np.ones(flat.shape[1], np.float32)
            steps = np.abs(np.diff(flat, axis=0) / scale).mean(1)
        begins = block.begins + np.arange(len(block.lengths))
        starts = flat[begins]
        spread = float(np.abs((starts - starts.mean(0)) / scale).mean(1).max(initial=0))
        for number, (begin, length) in enumerate(zip(begins, block.lengths, strict=True)):
            yield from self._crossing(dataset, before + number, flat[begin])
            if length < 2:
                self._waiting = None
                continue
            own = steps[begin : begin + length]
            longest = np.max(own[:-1])
            jump = float(own[-1] / (longest + 1e-12))
            self._waiting = (before + number, jump, flat[begin + length])
            inside = self._inside(own[:-1], flat[begin : begin + length], starts, scale, spread)
            if inside is not None:
                said = "the next observation jumps to where episodes begin: a reset within?"
                yield Finding("warning", "reset", said, before + number, inside)

    def _crossing(self, dataset: Dataset, number: int, first: np.ndarray) -> Iterator[Finding]:
        """Whether the successor that waits is this episode's first observation."""
        if self._waiting is None:
            return
        episode, jump, successor = self._waiting
        if jump > FAR and np.array_equal(successor, first):
            said = f"the last next_obs is the first observation of episode {number}"
            ended = bool(dataset.ended[episode])
            fix = COPY if ended else GIVE_UP
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
