"""Episodes of the last evaluation: their file, the worst and the best, as text and as a page."""
