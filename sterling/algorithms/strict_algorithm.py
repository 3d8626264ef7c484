"""A wrapper around an algorithm whose functions may not promote types or ranks silently."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax

PROMOTION = "jax_numpy_"  # in the text of every error about promotion
PROMOTION_REMEDY = (
    "Sterling's own checks and tests promote neither types nor axes silently: convert one with "
    ".astype(...), add axes with [None]. Code of another library can run in "
    "`with jax.numpy_dtype_promotion('standard'), jax.numpy_rank_promotion('allow'):`"
)


@dataclasses.dataclass(frozen=True)
class StrictAlgorithm:
    """An algorithm with the promotion of types and ranks that Sterling's own tests have: none.

    Only its own functions are strict, not the world that it acts in.
    """

    algorithm: Any

    def __getattr__(self, name: str) -> Any:
        """Return the algorithm's attribute; a function as one that is strict."""
        if name == "algorithm":  # not set yet, while the object is copied
            raise AttributeError(name)
        part = getattr(self.algorithm, name)
        if isinstance(part, type) or not callable(part):
            return part

        @functools.wraps(part)
        def strict(*args: Any, **named: Any) -> Any:
            with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
                return part(*args, **named)

        return strict
