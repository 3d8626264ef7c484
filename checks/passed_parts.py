"""Run a command for one part of the slow tests, unless that part passed before.

``python -m checks.passed_parts 3/6 -- COMMAND``. A part that passed is remembered for the same
commit, lock file and Python. Where the working tree differs from the commit, nothing is skipped
and nothing is remembered.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from checks import slow_parts
from checks.name_tables import ROOT

LOCK = "requirements/locked.txt"


def state(root: Path) -> str | None:
    """Return what a passed part holds for: commit, lock file and Python; None on a changed tree."""
    if _git(root, "status", "--porcelain"):
        return None
    lock = hashlib.sha256((root / LOCK).read_bytes()).hexdigest()
    return f"{_git(root, 'rev-parse', 'HEAD')} {lock} {sys.version.split()[0]}"


def run(root: Path, part: str, command: list[str]) -> int:
    """Run ``command`` unless the part passed; return its exit code, or 0."""
    memory = (root / _git(root, "rev-parse", "--git-common-dir")) / "sterling_passed_parts"
    now = state(root)
    line = f"{now} {part}"
    passed = memory.read_text().splitlines() if memory.exists() else []
    if now and line in passed:
        print(f"Part {part} passed for this commit, lock file and Python: not run again.")
        return 0
    code = subprocess.run(command, cwd=root, check=False).returncode
    if code == 0 and now and state(root) == now:
        with memory.open("a") as file:
            file.write(f"{line}\n")
    return code


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    wanted, _, *words = sys.argv[1:]
    slow_parts.parse(wanted)
    sys.exit(run(ROOT, wanted, words))
