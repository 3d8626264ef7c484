"""Steer a run: callbacks, conditions that stop it, the best policy beside the last."""
