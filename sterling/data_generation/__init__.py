"""Generate datasets: by trained agents, by scripts, and from tables with known values."""
