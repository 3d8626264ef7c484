"""Algorithms that learn to adapt to a task or level. One file each."""
