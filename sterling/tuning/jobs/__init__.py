"""Run the trials of a study: in one process side by side, or in several."""
