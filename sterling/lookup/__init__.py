"""Find what a user names: imports of user code, entry points, suggestions for misspelt names."""
