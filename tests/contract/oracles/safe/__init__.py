"""Oracles of the algorithms with limited costs."""
