"""Runs of several phases: their lengths, the change from one to the next, their results."""
