"""Algorithms whose reward is learned, from preferences or demonstrations. One file each."""
