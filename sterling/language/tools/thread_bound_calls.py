"""Functions that work in the thread alone in which something of theirs was opened."""

from __future__ import annotations

import sqlite3
import threading


class WrongThread(Exception):
    """A function has to be called in the main thread, where scenes are played."""


def refuse_wrong_thread(error: Exception) -> None:
    """Raise WrongThread if a function raised ``error`` beside the main thread because it uses a
    connection of SQLite that was opened in another one."""
    here = threading.current_thread() is threading.main_thread()
    if not here and isinstance(error, sqlite3.ProgrammingError) and "same thread" in str(error):
        raise WrongThread(str(error)) from error
