"""While a run goes on: signals, diverging seeds, folder locks, memory, compilation, timing."""
