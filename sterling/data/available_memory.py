"""How much memory is available for a dataset or a replay buffer."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from typing import Any

import psutil

from sterling.types import Mistake

UNCHECKED_BYTES = 1 << 26  # bytes; smaller arrays are allocated without asking what is free
MEMORY_SHARE = 0.5  # share of the free memory that a dataset may take; learning needs the rest


def memory_budget() -> int:
    """Return the bytes that a dataset may take: a share of :func:`free_bytes`."""
    return int(MEMORY_SHARE * free_bytes())


def free_bytes() -> int:
    """Return the bytes that this process may still allocate: the least of what the system has
    free, what ``ulimit`` allows, and what the control group allows."""
    return max(min(_system_free_bytes(), _rlimit_free_bytes(), _cgroup_free_bytes()), 0)


def check_fits(size: int, what: str) -> None:
    """Raise Mistake if ``size`` bytes are more than is free. Call it before allocating: the system
    may grant more than there is, and kill the process once it is used."""
    if size > UNCHECKED_BYTES and size > (free := free_bytes()):
        raise Mistake(
            f"{what} takes {size / 1e9:,.1f} GB of memory and {free / 1e9:,.1f} GB are free. "
            "Free some memory, or write the file in smaller parts."
        )


def _system_free_bytes() -> int:
    return int(psutil.virtual_memory().available)


def _rlimit_free_bytes() -> int:
    """Return the bytes that RLIMIT_DATA and RLIMIT_AS still allow."""
    taken = {"VmData": 0, "VmSize": 0}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in taken:
                taken[name] = 1024 * int(rest.split()[0])
    left = [1 << 62]
    try:
        resource: Any = importlib.import_module("resource")
    except ImportError:  # Windows
        return left[0]
    for kind, used in ((resource.RLIMIT_DATA, "VmData"), (resource.RLIMIT_AS, "VmSize")):
        most = resource.getrlimit(kind)[0]
        if most != resource.RLIM_INFINITY:
            left.append(most - taken[used])
    return min(left)


def _cgroup_free_bytes() -> int:
    """Return the bytes that the control group still allows, if there is one. Its inactive file
    cache counts as free: it is dropped when memory is needed."""
    root = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):
        most = int((root / "memory.max").read_text())
        taken = int((root / "memory.current").read_text())
        for line in (root / "memory.stat").read_text().splitlines():
            taken -= int(line.split()[1]) if line.startswith("inactive_file ") else 0
        return most - taken
    return 1 << 62
