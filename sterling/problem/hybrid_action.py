"""The action space of a policy that makes choices and gives numbers in one step."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces


class HybridAction(spaces.Box):
    """One row of float32: ``choices`` as whole numbers counted from 0, then ``numbers`` values.

    Args:
        choices: how many alternatives each choice has.
        low, high: the bounds of the numbers; infinite where there are none.
    """

    def __init__(self, choices: tuple[int, ...], low: np.ndarray, high: np.ndarray):
        self.choices, self.numbers = tuple(int(n) for n in choices), len(low)
        most = np.asarray(choices) - 1
        least, most = np.concatenate([np.zeros_like(most), low]), np.concatenate([most, high])
        super().__init__(least.astype(np.float32), most.astype(np.float32), dtype=np.float32)

    def __repr__(self) -> str:
        return f"HybridAction(choices {list(self.choices)}, {self.numbers} numbers)"
