"""Oracles of algorithms that imitate somebody who acts beside them."""
