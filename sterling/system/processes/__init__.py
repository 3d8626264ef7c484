"""Processes: whether this one is a command of Sterling, and those that answer questions for it."""
