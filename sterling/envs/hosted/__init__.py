"""Backends that step on the host, in supervised worker processes: Gymnasium and PettingZoo."""
