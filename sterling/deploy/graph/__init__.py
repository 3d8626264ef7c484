"""Derive the graph of a trained policy: a few array operations, from observation to action."""
