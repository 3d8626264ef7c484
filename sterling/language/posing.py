"""Which questions come next: random ones where there is no end of them, else each before any again.

A world of texts, or a family of tasks, that has an end says so by ``count(level)``: seeds 0 to
``count - 1`` pose every question of the level once, and so does every further such block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np


def count(world: Any, level: int) -> int:
    """How many questions there are at this level of a world or family; 0: without end."""
    return int(world.count(level)) if hasattr(world, "count") else 0


def posed(
    world: Any,
    levels: Sequence[int],
    random: np.random.Generator,
    latest: dict[int, int] | None = None,
) -> list[tuple[int, int]]:
    """``(seed, level)`` of the questions to pose next, one of each of these levels.

    Where a level has an end its seeds follow upon one another, from the beginning of a block that
    chance chooses. ``latest`` holds the last seed of each such level and is brought up to date.
    """
    latest = {} if latest is None else latest
    found = []
    for chance, level in zip(random.integers(2**31, size=len(levels)), levels, strict=True):
        seed = int(chance)
        if many := count(world, level):
            begin = seed // 2 // many * many  # so that a billion more are numbers of 31 bits
            latest[level] = seed = latest[level] + 1 if level in latest else begin
        found.append((seed, level))
    return found


def permuted(place: int, count: int, key: int) -> int:
    """Where a permutation of 0 to ``count`` - 1 puts ``place``; every ``key`` has one of its own.

    A Feistel network of four rounds (Luby 1988) permutes the least 4^k numbers that are enough;
    what it puts beyond ``count`` is sent through again (Black 2002, cycle walking), four times on
    average at most. So no order has to be made, however many there are.
    """
    half = (max(count - 1, 1).bit_length() + 1) // 2
    low = (1 << half) - 1
    while True:
        left, right = place >> half, place & low
        for turn in range(4):
            chance = hashlib.blake2b(f"{key}/{turn}/{right}".encode(), digest_size=8).digest()
            left, right = right, left ^ (int.from_bytes(chance, "big") & low)
        place = left << half | right
        if place < count:
            return place


def shuffled(seed: int, count: int) -> int:
    """Which of ``count`` things a seed draws, so that every block of ``count`` seeds draws each
    once, in an order of its own."""
    return permuted(seed % count, count, seed // count)
