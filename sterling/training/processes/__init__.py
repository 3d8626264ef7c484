"""One process per core for the seeds of a run: start them, and merge their results."""
