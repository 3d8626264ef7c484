"""Choose which configuration to try next: random, Bayesian, halving, population-based."""
