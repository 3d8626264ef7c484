"""The run folder and checkpoints: everything that a run writes in order to be resumed."""
