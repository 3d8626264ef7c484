"""Oracles of the learners of language models."""
