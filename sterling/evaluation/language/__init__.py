"""Evaluate language models: pass@k, paired problems, statistics of answers."""
