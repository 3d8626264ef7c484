"""Decide which of several algorithms is better: tendencies, looks, closed testing, power."""
