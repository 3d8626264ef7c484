"""Oracles of the algorithms that learn from logs."""
