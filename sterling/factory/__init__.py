"""Datasets made here: by our own agents, by scripts, and from tables with known values."""
