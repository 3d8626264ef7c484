"""Intervals of one number: means, rates, aggregates, curves, tolerance bands."""
