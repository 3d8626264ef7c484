"""Leaves that checkpoints lack because they were written before the leaves existed.

They are 0, except those of waiting batches of answers: ``right`` is whether the score is at least
1, and no ``named`` reward applies (NaN).

Running moments keep what float32 rounds off their mean in ``remainder``; older checkpoints, and
files of weights, have ``mean``, ``variance`` and ``count`` alone. Tallies of environments with
action masks note choices without an option in ``empty_choice``. The past of an actor with a memory
has the world's ``channels``. Replay buffers of learners from returns have them in ``to_go``. Runs
on texts keep the ``order`` in which they draw them. Rows of answers say which policy sampled their
tokens, and how many rows of their line come before.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

import numpy as np

REMAINDER = "/remainder"
TEXT_ORDER, ALWAYS = ("source/order/key", "source/order/drawn"), "iteration"
ADDED_TO_ANSWERS = ("rows_before", "version", "temperature")
RIGHT, NAMED, SCORE = "/extras/right", "/extras/named", "/extras/score"
PAST_CHANNELS, PAST_FIRST = "past/channels/", "past/first"
BESIDE = {
    REMAINDER: ("/mean", "/variance", "/count"),
    "/empty_choice": ("/episodes", "/invalid"),
    **{f"/extras/{name}": ("/extras/turn", "/extras/log_prob") for name in ADDED_TO_ANSWERS},
    RIGHT: (SCORE, "/extras/cut"),
    NAMED: (SCORE, "/extras/cut"),
    **{
        f"/to_go/{name}": ("/ring/words", "/ring/head")
        for name in ("total", "rest", "pending", "lowest", "count")
    },
}  # by the end of an added leaf's path: the leaves that were always beside it


def added_leaves(names: Container[str], wanted: Iterable[str]) -> set[str]:
    """Return which ``wanted`` leaves were added to parts that are complete but for them among
    ``names``."""
    order = {name for name in wanted if name in TEXT_ORDER and name not in names}
    return (
        (order if ALWAYS in names else set())
        | {
            name
            for name in wanted
            for added, beside in BESIDE.items()
            if name.endswith(added)
            and name not in names
            and all(name.removesuffix(added) + each in names for each in beside)
        }
        | {
            name
            for name in wanted
            if PAST_CHANNELS in name
            and name not in names
            and name.partition(PAST_CHANNELS)[0] + PAST_FIRST in names
        }
    )


def earlier_value(name: str, blank: np.ndarray, read: Callable[[str], np.ndarray]) -> np.ndarray:
    """Return an added leaf's value, ``blank`` unless it follows from another, which ``read``
    reads by its name."""
    if name.endswith(RIGHT):
        return read(name.removesuffix(RIGHT) + SCORE) >= 1.0
    return np.full_like(blank, np.nan) if name.endswith(NAMED) else blank
