"""Oracles of the algorithms in sterling/algorithms/continuous/."""
