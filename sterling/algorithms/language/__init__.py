"""Algorithms that train language models, and the equations only they share."""
