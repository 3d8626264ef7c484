"""Algorithms that learn from each step as it comes, and store none. One file each."""
