"""Hyperparameter search with several seeds per trial, and a test on fresh seeds."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sterling.tuning.tuning_api import Tuned, resume, tune

__all__ = ["Tuned", "resume", "tune"]


def __getattr__(name: str) -> Any:  # JAX is only imported once something needs it
    if name in __all__:
        return getattr(import_module("sterling.tuning.tuning_api"), name)
    raise AttributeError(f"module 'sterling.tuning' has no attribute {name!r}")
