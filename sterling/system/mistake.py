"""The exception for usage errors. It imports nothing, so that every file can raise it."""


class Mistake(Exception):
    """A usage error: one line that names what is wrong and what to type instead."""
