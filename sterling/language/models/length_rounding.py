"""Round lengths and counts up to few different ones, so that few programs are compiled."""

from __future__ import annotations


def round_up_length(length: int) -> int:
    """Round ``length`` up to a number of two significant bits (8, 12, 16, 24, 32, ...). Few
    different shapes are compiled then, for at most a third more padding."""
    size = 8
    while size < length:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size
