"""Check a dataset for what silently ruins learning, and repair it."""
