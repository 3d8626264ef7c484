"""Environments by name, and wrappers around them. Each backend has a room."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sterling.envs.make_world import make
    from sterling.envs.registry import names

__all__ = ["make", "names"]

_HOME = {"make": "make_world", "names": "registry"}


def __getattr__(name: str) -> Any:  # workers of environments need not import JAX
    if name in _HOME:
        return getattr(import_module(f"sterling.envs.{_HOME[name]}"), name)
    raise AttributeError(f"module 'sterling.envs' has no attribute {name!r}")
