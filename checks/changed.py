"""Run the tests that what changed since a commit can affect.

``python -m checks.changed --since main --first tests/contract -- COMMAND``: COMMAND is pytest's
words without files. Tests below the folders of ``--first`` run in a process of their own.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import durations, selection, tree_files
from checks.changed_cases import CASES_FILE
from checks.name_tables import ROOT
from checks.selection import WHOLE_FILE, Selection


def changed_files(since: str) -> set[str]:
    """Return the paths that differ between the working tree and its merge base with ``since``,
    new and deleted ones too."""
    base = _git("merge-base", since, "HEAD").strip()
    found = _git("diff", "--name-only", "--no-renames", "-z", base)
    new = _git("ls-files", "--others", "--exclude-standard", "-z")
    return {path for path in (found + new).split("\0") if path}


def groups(chosen: Selection, first: list[str]) -> list[list[str]]:
    """Return the selected files in two groups, those in the folders ``first`` before the others;
    no empty group."""
    folders = tuple(f"{folder}/" for folder in first)
    ahead = [file for file in sorted(chosen) if file.startswith(folders)]
    rest = [file for file in sorted(chosen) if not file.startswith(folders)]
    return [each for each in (ahead, rest) if each]


def main(words: list[str]) -> int:
    """Run the tests, and return the first exit code that is not 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--since", default="main", help="a commit or branch (default: main)")
    parser.add_argument("--first", nargs="*", default=[], help="folders of tests that run first")
    parser.add_argument("--list", action="store_true", help="list what is selected, run nothing")
    end = words.index("--") if "--" in words else len(words)
    options, command = parser.parse_args(words[:end]), words[end + 1 :]
    chosen = selection.select(changed_files(options.since))
    if chosen is None:
        chosen = dict.fromkeys(tree_files.tests(), WHOLE_FILE)
    minutes = durations.total(durations.load(), chosen) / 60
    print(f"{len(chosen)} test files; {minutes:.1f} minutes of timed tests", flush=True)
    if options.list:
        print(*sorted(chosen), sep="\n")
        return 0
    return _run(chosen, options.first, command)


def _run(chosen: Selection, first: list[str], command: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cases.json"
        plain = {
            path: {test: dataclasses.asdict(cases) for test, cases in tests.items()}
            for path, tests in chosen.items()
        }
        file.write_text(json.dumps(plain))
        environment = {**os.environ, CASES_FILE: str(file)}
        for files in groups(chosen, first):
            words = [*command, "-p", "checks.changed_cases", *files]
            code = subprocess.run(words, check=False, env=environment).returncode
            if code:
                return code
    return 0


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
