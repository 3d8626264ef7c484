"""Worlds: everything an agent can act in, by name."""

from sterling.envs.registry import make, names

__all__ = ["make", "names"]
