"""The command line: ``sterling train | resume | compare | ...``, each a file in ``commands/``."""

from __future__ import annotations

import errno
import os
import sys
import termios
import warnings
from collections.abc import Sequence
from pathlib import Path

from sterling import commands
from sterling.leaving import INTERRUPTED, Leaving
from sterling.options import WRONG_USE, parse

FULL = (errno.ENOSPC, errno.EDQUOT)
REFUSED = (  # what a file system answers about a place that the user has named
    *(errno.EACCES, errno.EPERM, errno.EROFS, *FULL),
    *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
)
NO_ROOM = "RESOURCE_EXHAUSTED"
SMALLER = (
    "take fewer seeds, envs or rows of a batch; of a language model shorter lines (--context), "
    "fewer at a time (--slots, --piece), or --forget"
)


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says and return its exit code.

    0: done; 1: every seed failed, or a score is below the published one; 2: wrong use, said in one
    line; 130: interrupted, and nothing to go on with. SystemExit 75 passes through: the run was
    stopped, is saved and can be resumed.
    """
    with Leaving() as leaving:  # before anything slow is imported
        try:
            return _carried_out(sys.argv[1:] if words is None else words)
        except KeyboardInterrupt:
            if leaving.asked:
                leaving.leave()
            return INTERRUPTED
        except Exception as error:
            if _is_unheard(error):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return 0
            if leaving.asked:  # an import that was interrupted may fail in words of its own
                leaving.leave()
            return _told(error)


def _carried_out(words: Sequence[str]) -> int:
    chosen = parse(words)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # other packages' warnings; `python -W` brings them back
    for name, value in vars(chosen).items():
        if isinstance(value, Path):  # of --out=~/runs a shell leaves the ~ to us
            setattr(chosen, name, value.expanduser())
    return int(commands.find(chosen.command).carry_out(chosen))


def _is_unheard(error: Exception) -> bool:
    """Whether nobody reads what is printed: `head` has seen enough, or the terminal is closed."""
    if isinstance(error, BrokenPipeError):
        return True
    if not isinstance(error, OSError) or error.errno != errno.EIO or error.filename:
        return False
    try:
        termios.tcgetattr(sys.stdout.fileno())
    except termios.error as refused:
        return refused.args[0] == errno.EIO  # what a closed terminal answers; files are ENOTTY
    return False


def _told(error: Exception) -> int:
    """Say in one line what is the user's to put right; anything else is ours and goes on up."""
    from sterling.envs.workers import WorldFailed
    from sterling.types import Mistake

    if isinstance(error, OSError) and error.errno in REFUSED:
        if error.filename:
            error = Mistake(f"{error.filename}: {error.strerror}; choose a place that can be used")
        elif error.errno in FULL:  # written to by then, and who writes is not told where
            error = Mistake(f"{error.strerror}; make room, then give the command again")
    if type(error).__name__ == "JaxRuntimeError" and str(error).startswith(NO_ROOM):
        said = "memory does not suffice"
        asked = str(error).removeprefix(NO_ROOM).partition("\n")[0].strip(": .")
        error = Mistake(f"{said} ({asked}); {SMALLER}")
    if not isinstance(error, (Mistake, WorldFailed)):
        raise error
    print(f"sterling: {error}", file=sys.stderr)
    return WRONG_USE if isinstance(error, Mistake) else 1
