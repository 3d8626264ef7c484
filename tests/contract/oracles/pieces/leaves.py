"""A state as a dictionary: path -> array of float64, in the order of the tree."""

from __future__ import annotations

from typing import Any

import numpy as np

Prefix = str | tuple[str, ...]  # where parameters stand; of several places: in this order


class Leaves(dict):
    """The arrays of a state by their paths, such as ``.nets.policy.layers[0].weight``."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self._found: dict[tuple[Prefix, int], list[str]] = {}

    def under(self, prefix: Prefix) -> list[str]:
        """Return the paths below ``prefix``, in the order of the tree."""
        asked = (prefix, len(self))  # paths are only added; differences ask for them ever again
        if asked not in self._found:
            self._found[asked] = self._search(prefix)
        return self._found[asked]

    def _search(self, prefix: Prefix) -> list[str]:
        if isinstance(prefix, tuple):
            return [path for each in prefix for path in self.under(each)]
        return [path for path in self if path.startswith((prefix + ".", prefix + "["))] or (
            [prefix] if prefix in self else []
        )

    def vector(self, prefix: Prefix) -> np.ndarray:
        """Return all numbers below ``prefix`` as one vector."""
        return np.concatenate([self[path].ravel() for path in self.under(prefix)])

    def put(self, prefix: Prefix, vector: np.ndarray) -> None:
        """Write a vector back to the paths that :meth:`vector` read it from."""
        start = 0
        for path in self.under(prefix):
            size, shape = self[path].size, self[path].shape
            self[path] = vector[start : start + size].reshape(shape)
            start += size

    def follow(self, slow: str, fast: str, tau: float) -> None:
        """Move the parameters below ``slow`` towards those below ``fast`` by the share ``tau``."""
        self.put(slow, (1.0 - tau) * self.vector(slow) + tau * self.vector(fast))

    def frozen(self) -> Leaves:
        """Return a copy that later writes do not reach."""
        return Leaves({path: leaf.copy() for path, leaf in self.items()})
