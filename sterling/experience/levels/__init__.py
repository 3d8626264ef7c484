"""Sources that choose where episodes begin: level replay, level editing, Go-Explore."""
