"""Algorithms that learn while they act, one file each."""
