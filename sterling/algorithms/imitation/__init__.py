"""Algorithms that imitate somebody who acts beside them."""
