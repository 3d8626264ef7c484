"""Observations of any length, padded to one shape."""
