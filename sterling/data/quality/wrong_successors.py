"""Find successors that belong to the next episode: the most repeated bug of logged experience.

An environment that resets itself returns, after the last step, the *next* episode's first
observation. Such a successor has two signs: it equals the next episode's first observation, and it
is a jump, far longer than the steps of its episode. Both are required, because episodes cut out of
one long stream are continuous and nothing is wrong with them. If an episode moved fast, or ended
near to where others begin, its jump is short. So the file is judged as a whole: if enough of the
equal successors are jumps, all of them are reported.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sterling.data import space_json
from sterling.data.dataset import Dataset
from sterling.data.episode_columns import Block
from sterling.data.quality.dataset_findings import COPY_OBSERVATION, DROP_LAST_STEP, Finding

JUMP_RATIO = 3.0  # a jump is this many times the longest step of its episode
JUMP_SHARE = 0.1  # share of jumps among equal successors from which all of them are reported; in a
# continuous stream that was cut into episodes few are jumps, by chance
INNER_JUMP_RATIO = (
    10.0  # times the episode's 0.9 quantile of steps: an unrecorded reset inside an episode
)


class ResetFinder:
    """Examine blocks in order, and remember last successors until all blocks were seen."""

    def __init__(self, dataset: Dataset):
        self._names = [
            name
            for name, part in space_json.column_spaces("obs", dataset.obs_space).items()
            if np.dtype(part.dtype).kind == "f"
        ]
        self._waiting: tuple[int, float, np.ndarray] | None = None  # episode, jump, successor
        # episode and jump, for episodes whose successor is the next episode's first observation
        self._equal: list[tuple[int, float]] = []

    def examine(self, dataset: Dataset, block: Block, before: int) -> Iterator[Finding]:
        """Yield the resets inside the episodes of a block, whose first has number ``before``, and
        compare last successors with first observations for :meth:`findings`."""
        if not self._names:
            return
        columns = [block.arrays[name] for name in self._names]
        flat = np.concatenate([x.reshape(len(x), -1) for x in columns], 1).astype(np.float32)
        flat[~np.isfinite(flat)] = np.nan  # excluded from all statistics below
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
            jump = float(own[-1] / (longest + 1e-12)) if length > 1 else np.nan  # one step: unknown
            self._waiting = (before + number, jump, flat[begin + length]) if length else None
            inside = self._inside(own[:-1], flat[begin : begin + length], starts, scale, spread)
            if inside is not None:
                message = "the next observation jumps to where episodes begin: an unrecorded reset?"
                yield Finding("warning", "reset", message, before + number, inside)

    def _compare(self, first: np.ndarray) -> None:
        """Remember the previous episode if its last successor equals this first observation."""
        if self._waiting is not None and np.array_equal(self._waiting[2], first):
            self._equal.append(self._waiting[:2])

    def findings(self, dataset: Dataset) -> Iterator[Finding]:
        """Yield the last successors that belong to the next episode, once all blocks were seen."""
        jumps = [jump for _, jump in self._equal if np.isfinite(jump)]
        all_cross = bool(jumps) and np.mean(np.array(jumps) > JUMP_RATIO) >= JUMP_SHARE
        for episode, jump in self._equal:
            if not (all_cross or jump > JUMP_RATIO):
                continue
            message = f"the last next_obs is the first observation of episode {episode + 1}"
            fix = COPY_OBSERVATION if dataset.ended[episode] else DROP_LAST_STEP
            step = int(dataset.lengths[episode]) - 1
            yield Finding("error", "next_obs", message, episode, step, fix)

    @staticmethod
    def _inside(
        steps: np.ndarray, flat: np.ndarray, starts: np.ndarray, scale: np.ndarray, spread: float
    ) -> int | None:
        """Return the step of an episode that jumps to where episodes begin, or None."""
        if len(steps) < 20 or len(starts) < 5:
            return None
        at = int(np.argmax(steps))
        if not steps[at] > INNER_JUMP_RATIO * (np.quantile(steps, 0.9) + 1e-12):
            return None
        away = np.abs((flat[at + 1] - starts.mean(0)) / scale).mean()
        return at if away <= spread and at > 0 else None
