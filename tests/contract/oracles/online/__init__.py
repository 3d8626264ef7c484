"""Oracles of the algorithms that learn while they act."""
