"""Oracles of algorithms that learn from each step as it comes."""
