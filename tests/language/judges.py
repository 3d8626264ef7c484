"""Judges that misbehave, for a process of their own: it imports this file and no more."""

import os
import stat
import time


def sleeping(_):
    """A judge that takes as long as it is asked to."""
    return time.sleep


def rambling(_):
    """A judge that writes lines of its own beside those that are read."""
    pipe = max(each for each in range(3, 20) if _is_pipe(each))
    lines = {"text": b"hello\n", "deep": b"[" * 100_000 + b"\n", "long": b"x" * 2**25}

    def answer(name):
        said = lines[name]
        while said:
            said = said[os.write(pipe, said) :]

    return answer


def _is_pipe(number):
    try:
        return stat.S_ISFIFO(os.fstat(number).st_mode)
    except OSError:
        return False
