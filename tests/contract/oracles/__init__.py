"""One update of every algorithm written a second time, in plain NumPy, from the papers' equations.

Nothing here imports Sterling, JAX or a library for gradients. An oracle reads a state's leaves by
their paths, in float64, and leaves in the same dictionary the state after the update. Gradients are
central differences of the loss (pieces/slopes.py), so no rule of differentiation is shared either.
Rows without a mask are cut out before anything is computed. The random numbers that an update uses
are handed to the oracle: tests/contract/draws.py derives them from the key.
"""
