"""A wrapper around an algorithm that plans: it acts by ``prior``, without planning."""

from __future__ import annotations

import dataclasses
from typing import Any

PRIOR = "prior"  # the function that stands in for ``recall``, or for ``act``


@dataclasses.dataclass(frozen=True)
class UnplannedAlgorithm:
    """An algorithm whose ``recall``, or ``act`` if it has no memory, is its ``prior``."""

    algorithm: Any

    def __getattr__(self, name: str) -> Any:
        """Return the algorithm's attribute, or ``prior`` in place of the function that acts."""
        if name == "algorithm":  # not set yet, while the object is copied
            raise AttributeError(name)
        return getattr(self.algorithm, PRIOR if name == acting_name(self.algorithm) else name)


def acting_name(algorithm: Any) -> str:
    """Return the name of the function by which an algorithm acts."""
    return "recall" if hasattr(algorithm, "memory") else "act"
