"""Pairs of answers of which the first is the better one."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import tokens


def every(batch: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return tokens ``(2, pair, time)``, masks ``(2, pair, token)`` and which pairs count: those
    both of whose answers do. The batch's first half are the better ones."""
    ids, mask = (np.stack(np.split(x, 2)) for x in tokens.read(batch))
    return ids, mask, mask.any(-1).all(0)


def read(batch: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens and masks of the pairs that count."""
    ids, mask, there = every(batch)
    return ids[:, there], mask[:, there]


def mismatched(batch: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return lines and where their answers stand: each prompt with the answer to the next pair's
    prompt, cut off where the line is full. Both pairs must count."""
    ids, mask, there = every(batch)
    lines = []
    for side in range(2):
        for pair in range(len(there)):
            other = (pair + 1) % len(there)
            if not (there[pair] and there[other]):
                continue
            begin = int(np.argmax(mask[side, pair])) + 1
            answer = ids[side, other, 1:][mask[side, other]]
            line = np.concatenate([ids[side, pair, :begin], answer])[: ids.shape[-1]]
            own = np.arange(1, len(line)) >= begin
            lines.append((line, own))
    return lines


def log_sigmoid(x: np.ndarray) -> np.ndarray:
    """Return log(1 / (1 + e^-x))."""
    return -np.log1p(np.exp(-x))
