"""The command line ``sterling``: run a command of ``commands/``, and print errors as one line."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from sterling import commands
from sterling.cli_options import WRONG_USE, parse_command_line
from sterling.commands.options.option_spelling import spell_as_options
from sterling.system.interrupts import EXIT_INTERRUPTED, CtrlCHandler
from sterling.system.mistake import Mistake
from sterling.system.processes.own_process import claim_process

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
PLACE_REFUSED = (  # errors of the file system about a path that the user gave
    *(errno.EACCES, errno.EPERM, errno.EROFS, *DISK_FULL),
    *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
)
OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
MEMORY_REMEDY = (
    "Use fewer seeds, fewer envs or a smaller batch; for a language model a shorter --context, "
    "smaller --slots or --piece, or --forget"
)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command, by default that of this process, and return its exit code.

    0: done; 1: every seed failed, or a score is below the published one; 2: wrong use, reported in
    one line; 130: interrupted, and there is nothing to resume. SystemExit 75 passes through: the
    run was stopped, is saved and can be resumed.
    """
    if words is None:
        claim_process()
    with CtrlCHandler() as leaving:  # before anything slow is imported
        try:
            return _run_command(sys.argv[1:] if words is None else words)
        except KeyboardInterrupt:
            if leaving.asked:
                leaving.leave()
            return EXIT_INTERRUPTED
        except Exception as error:
            if _is_output_closed(error):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return 0
            if leaving.asked:  # an interrupted import may raise any other exception
                leaving.leave()
            return _report_error(error)


def _run_command(words: Sequence[str]) -> int:
    chosen = parse_command_line(words)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # hides other packages' warnings; `python -W` shows them
    for name, value in vars(chosen).items():
        if isinstance(value, Path):  # shells do not expand the ~ of --out=~/runs
            setattr(chosen, name, value.expanduser())
    try:
        return int(commands.command_module(chosen.command).carry_out(chosen))
    except Mistake as error:
        of_environment = dict(getattr(chosen, "env", None) or ())
        error.args = (spell_as_options(str(error), chosen.option_names, of_environment),)
        raise


def _is_output_closed(error: Exception) -> bool:
    """Whether the reader of the output is gone: `head` has ended, or the terminal is closed."""
    if isinstance(error, BrokenPipeError):
        return True
    if not isinstance(error, OSError) or error.errno != errno.EIO or error.filename:
        return False
    if not hasattr(os, "tcgetpgrp"):  # Windows
        return False
    try:
        os.tcgetpgrp(sys.stdout.fileno())
    except OSError as refused:
        return refused.errno == errno.EIO  # a closed terminal; a file gives ENOTTY
    return False


def _report_error(error: Exception) -> int:
    """Print an error that the user can fix as one line; raise any other error again."""
    from sterling.envs.hosted.worker_pool import WorldFailed

    if isinstance(error, OSError) and error.errno in PLACE_REFUSED:
        if error.filename:
            error = Mistake(f"{error.filename}: {error.strerror}. Choose another path")
        elif error.errno in DISK_FULL:  # the error does not name the file
            error = Mistake(f"{error.strerror}. Free disk space, then run the command again")
    if type(error).__name__ == "JaxRuntimeError" and str(error).startswith(OUT_OF_MEMORY):
        said = "out of memory"
        asked = str(error).removeprefix(OUT_OF_MEMORY).partition("\n")[0].strip(": .")
        error = Mistake(f"{said} ({asked}). {MEMORY_REMEDY}")
    if not isinstance(error, (Mistake, WorldFailed)):
        raise error
    print(f"sterling: {error}", file=sys.stderr)
    return WRONG_USE if isinstance(error, Mistake) else 1
