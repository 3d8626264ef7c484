"""Networks as trees of arrays."""
