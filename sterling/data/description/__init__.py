"""Describe a dataset: quality, coverage, randomness, and which learners suit it."""
