"""How much memory there is to put a dataset or a replay into."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

from sterling.types import Mistake

SMALL = 1 << 26  # bytes that are taken without a look at what is free
SHARE = 0.5  # of the free memory that a dataset may take; learning needs the rest


def room() -> int:
    """Bytes a dataset may take: a share of what is free, and of what limits leave (``ulimit``,
    control groups)."""
    return int(SHARE * left())


def left() -> int:
    """Bytes that are free, and that limits leave."""
    return max(min(_free(), _limited(), _grouped()), 0)


def check(size: int, what: str) -> None:
    """Raise Mistake where so many bytes are more than is free. To be called before they are asked
    for: the system may give them, and end the process once they are used."""
    if size > SMALL and size > (free := left()):
        raise Mistake(
            f"{what} takes {size / 1e9:,.1f} GB of memory and {free / 1e9:,.1f} GB are free; "
            "free some, or write the file in smaller parts"
        )


def _free() -> int:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable"))
        return 1024 * int(line.split()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _limited() -> int:
    """What RLIMIT_DATA and RLIMIT_AS leave."""
    taken = {"VmData": 0, "VmSize": 0}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in taken:
                taken[name] = 1024 * int(rest.split()[0])
    left = [1 << 62]
    for kind, used in ((resource.RLIMIT_DATA, "VmData"), (resource.RLIMIT_AS, "VmSize")):
        most = resource.getrlimit(kind)[0]
        if most != resource.RLIM_INFINITY:
            left.append(most - taken[used])
    return min(left)


def _grouped() -> int:
    """What the control group leaves, where there is one; files that are only remembered in memory
    make room when it is asked for."""
    root = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):
        most = int((root / "memory.max").read_text())
        taken = int((root / "memory.current").read_text())
        for line in (root / "memory.stat").read_text().splitlines():
            taken -= int(line.split()[1]) if line.startswith("inactive_file ") else 0
        return most - taken
    return 1 << 62
