"""Worlds that ask for goals, in forms that learners of goals read."""
