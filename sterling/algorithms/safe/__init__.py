"""Algorithms under limits on what an episode may cost. One file each."""
