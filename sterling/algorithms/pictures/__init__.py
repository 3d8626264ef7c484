"""Algorithms that learn what to see in pictures. One file each."""
