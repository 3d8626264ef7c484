"""Settings found without fooling oneself: several seeds per trial, a test on others."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sterling.tuning.api import Tuned, resume, tune

__all__ = ["Tuned", "resume", "tune"]


def __getattr__(name: str) -> Any:  # JAX is only imported once something needs it
    if name in __all__:
        return getattr(import_module("sterling.tuning.api"), name)
    raise AttributeError(f"module 'sterling.tuning' has no attribute {name!r}")
