"""Oracles of the algorithms with learned rewards."""
