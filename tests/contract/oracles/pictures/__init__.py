"""Oracles of the algorithms with search by whole episodes."""
