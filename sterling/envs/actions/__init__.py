"""Wrappers of worlds that change the form of actions: masks, bounds, nested actions."""
