"""Fitted Q evaluation: the regression, its convergence, and the value with its interval."""
