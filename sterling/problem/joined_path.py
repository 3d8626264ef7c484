"""Join the names on the path to a part of an observation or action, whatever the names contain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def joined_path(path: Iterable[Any]) -> str:
    """Return the names on a path joined by /. A name may contain /, so ~1 stands for / and ~0 for
    ~ in names (RFC 6901): no two paths have the same text."""
    return "/".join(str(word).replace("~", "~0").replace("/", "~1") for word in path)
