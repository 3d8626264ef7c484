"""Warm starts: begin with the learned state of an earlier run, or with a file of weights."""
