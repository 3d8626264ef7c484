"""Algorithms that learn from a dataset, or from a dataset first. One file each."""
