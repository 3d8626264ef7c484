"""Causal language models: forward pass, generation, weights on disk, adapters."""
