"""Oracles of the algorithms that learn to adapt."""
