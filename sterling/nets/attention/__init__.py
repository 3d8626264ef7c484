"""Attention over whole sequences."""
