"""Probe worlds: environments with known answers, for the contract tests. One file each."""
