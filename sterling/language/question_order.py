"""Choose the next questions: at random if they are unlimited, else each one before any comes again.

A world of text, or a family of tasks, with a limited number of questions offers ``count(level)``:
seeds 0 to ``count - 1`` ask every question of the level once, and so does every further block of
``count`` seeds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np


def question_count(world: Any, level: int) -> int:
    """Return the number of questions at this level of a world or family; 0: unlimited."""
    return int(world.count(level)) if hasattr(world, "count") else 0


def next_questions(
    world: Any,
    levels: Sequence[int],
    random: np.random.Generator,
    latest: dict[int, int] | None = None,
) -> list[tuple[int, int]]:
    """Return ``(seed, level)`` of the next questions, one for each of ``levels``.

    At a level with a limited number of questions the seeds follow one another, from the beginning
    of a random block. ``latest`` holds the last seed of each such level and is updated.
    """
    latest = {} if latest is None else latest
    found = []
    for chance, level in zip(random.integers(2**31, size=len(levels)), levels, strict=True):
        seed = int(chance)
        if count := question_count(world, level):
            begin = seed // 2 // count * count  # halved: a billion more stay below 2^31
            latest[level] = seed = latest[level] + 1 if level in latest else begin
        found.append((seed, level))
    return found


def permuted_index(place: int, count: int, key: int) -> int:
    """Return the index that a random permutation assigns to ``place`` (0 <= place < count), without
    storing the permutation. Every ``key`` has a permutation of its own.

    A Feistel network of four rounds (Luby 1988) permutes the smallest range of 4^k numbers that
    contains ``count``. An index beyond ``count`` is permuted again (cycle walking, Black 2002),
    four times on average at most.
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


def shuffled_index(seed: int, count: int) -> int:
    """Return which of ``count`` things a seed draws: every block of ``count`` seeds draws each of
    them once, in an order of its own."""
    return permuted_index(seed % count, count, seed // count)
