"""Algorithms that learn values of discrete actions, beside dqn. One file each."""
