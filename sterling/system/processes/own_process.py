"""Whether this process carries out one command of Sterling, so that no other code can have changed
its functions."""

from __future__ import annotations

_own = [False]


def claim_process() -> None:
    """Say that this process was started for a command, and will do nothing else."""
    _own[0] = True


def is_own_process() -> bool:
    """Whether :func:`claim_process` was called: not in a program that imports Sterling."""
    return _own[0]
