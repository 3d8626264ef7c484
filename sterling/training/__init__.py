"""Runs: the loop, what surrounds it, and the folder it leaves behind."""
