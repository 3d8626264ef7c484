"""Oracles of the algorithms with learned models."""
