"""Planners: which actions are best by a model that the caller brings as a function."""
