"""Bonuses for what is new, which are added to a rollout's rewards."""
