"""Pairs of answers of which the first is the better one."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import tokens


def read(batch: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens ``(2, pair, time)`` and masks ``(2, pair, token)`` of the pairs both of whose
    answers count. The batch's first half are the better ones."""
    ids, mask = (np.stack(np.split(x, 2)) for x in tokens.read(batch))
    there = mask.any(-1).all(0)
    return ids[:, there], mask[:, there]


def mismatched(ids: np.ndarray, mask: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return lines ``(side and pair)``: each prompt with the answer to the next pair's prompt, cut
    off where the line is full, and where that answer stands."""
    lines = []
    for side in range(2):
        for pair in range(ids.shape[1]):
            other = (pair + 1) % ids.shape[1]
            begin = int(np.argmax(mask[side, pair])) + 1
            answer = ids[side, other, 1:][mask[side, other]]
            line = np.concatenate([ids[side, pair, :begin], answer])[: ids.shape[-1]]
            own = np.arange(1, len(line)) >= begin
            lines.append((line, own))
    return lines


def log_sigmoid(x: np.ndarray) -> np.ndarray:
    """Return log(1 / (1 + e^-x))."""
    return -np.log1p(np.exp(-x))
