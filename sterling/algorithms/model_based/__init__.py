"""Algorithms that learn a model of the environment, and plan or learn in it. One file each."""
