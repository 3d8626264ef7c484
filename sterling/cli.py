"""The command line: ``sterling train | resume | compare | ...``, each a file in ``commands/``."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

from sterling import commands
from sterling.options import WRONG_USE, parse

INTERRUPTED = 130  # exit code, as shells have it


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says and return its exit code.

    0: done; 1: every seed failed, or a score is below the published one; 2: wrong use, said in one
    line. SystemExit 75 passes through: the run was stopped, is saved and can be resumed.
    """
    chosen = parse(sys.argv[1:] if words is None else words)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # other packages' warnings; `python -W` brings them back
    try:
        return int(commands.find(chosen.command).carry_out(chosen))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _told(error)


def _told(error: Exception) -> int:
    """Say in one line what is the user's to put right; anything else is ours and goes on up."""
    from sterling.envs.workers import WorldFailed
    from sterling.types import Mistake

    if not isinstance(error, (Mistake, WorldFailed)):
        raise error
    print(f"sterling: {error}", file=sys.stderr)
    return WRONG_USE if isinstance(error, Mistake) else 1
