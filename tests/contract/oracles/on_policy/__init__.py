"""Oracles of the algorithms that learn from fresh rollouts."""
