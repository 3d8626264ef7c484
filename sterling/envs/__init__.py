"""Environments by name, and wrappers around them. Each backend has a room."""

from sterling.envs.make_world import make
from sterling.envs.registry import names

__all__ = ["make", "names"]
