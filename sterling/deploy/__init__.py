"""Deploy trained control policies: export them to files without JAX, and serve them over HTTP."""
