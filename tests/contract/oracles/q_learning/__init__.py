"""Oracles of the algorithms in sterling/algorithms/q_learning/."""
