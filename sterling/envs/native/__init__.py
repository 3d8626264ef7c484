"""Environments written in JAX for Sterling, one file each. No tests' probe worlds."""
