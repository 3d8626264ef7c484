"""Algorithms that search over parameters by whole episodes. One file each."""
