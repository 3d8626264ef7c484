"""Scripted policies and oracles that generate datasets, by environment."""
