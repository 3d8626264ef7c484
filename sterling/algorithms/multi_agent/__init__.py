"""Algorithms for several agents in one environment. One file each."""
