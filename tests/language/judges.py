"""Judges that misbehave, for a process of their own: it imports this file and no more."""

import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path


def sleeping(_):
    """A judge that takes as long as it is asked to."""
    return time.sleep


def rambling(_):
    """A judge that writes lines of its own beside those that are read."""
    lines = {"text": b"hello\n", "deep": b"[" * 100_000 + b"\n", "long": b"x" * 2**25}

    def answer(name):
        connection = max(each for each in range(3, 20) if _is_socket(each))
        said = lines[name]
        while said:
            said = said[os.write(connection, said) :]

    return answer


def _is_socket(number):
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False


def obedient(folder):
    """A judge that does as it is asked, ``[what, value]``, and knows others by files in
    ``folder``."""
    calls = []

    def meet(count):
        """Return this process once ``count`` have come: only if that many run at once."""
        Path(folder, str(os.getpid())).touch()
        while len([*Path(folder).iterdir()]) < count:
            time.sleep(0.005)
        return os.getpid()

    def leave_a_sleeper(seconds):
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(folder, "sleeper").write_text(str(sleeper.pid))
        time.sleep(seconds)

    def print_and_sleep(words):
        print(words)
        time.sleep(600.0)

    def count(_):
        calls.append(1)
        return len(calls)

    does = {
        "echo": lambda value: value,
        "process": lambda _: os.getpid(),
        "group": lambda _: os.getpgid(0),
        "server": lambda _: os.getppid(),
        "sleep": time.sleep,
        "exit": os._exit,
        "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
        "draw": lambda _: random.random(),
        "use": lambda count: len(bytearray(count)),
        "print": print,
        "print and sleep": print_and_sleep,
        "meet": meet,
        "leave a sleeper": leave_a_sleeper,
        "count": count,
    }
    return lambda question: does[question[0]](question[1])


def with_a_thread(_):
    """A judge whose setup leaves a thread running."""
    threading.Thread(target=time.sleep, args=(600.0,), daemon=True).start()
    return lambda _: os.getpid()


def with_numpy(_):
    """A judge that draws random numbers by NumPy."""
    import numpy as np

    return lambda _: np.random.rand()


def with_closed_output(_):
    """A judge whose setup has closed what it prints to."""
    sys.stdout.close()

    def answer(seconds):
        time.sleep(seconds)
        return os.getpid()

    return answer


def forked_twice(_):
    """A judge of a process that the system lets fork two others and no more."""
    return _forked(2)


def never_forked(_):
    """A judge of a process that the system lets fork no other."""
    return _forked(0)


def _forked(most):
    fork, forks = os.fork, []

    def fork_until_most():
        if len(forks) == most:
            raise BlockingIOError("no more processes")
        forks.append(1)
        return fork()

    os.fork = fork_until_most

    def answer(seconds):
        time.sleep(seconds)
        return os.getpid()

    return answer
