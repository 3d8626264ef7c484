"""Algorithms that learn from a log to reach any goal. One file each."""
