"""Oracles of the algorithms with several agents."""
