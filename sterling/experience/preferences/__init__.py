"""Pairs of trajectory segments that someone compares, and who compares them."""
