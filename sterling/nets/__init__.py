"""Neural networks, distributions, normalisers and the optimiser, as trees of arrays (Equinox)."""
