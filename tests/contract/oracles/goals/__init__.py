"""Oracles of the algorithms that learn from logs to reach any goal."""
