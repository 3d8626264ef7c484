"""Measure which tests run which statements, once, and choose the tests for a planted bug."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import swap
import trial
from sites import Mutant

# The tests that are measured for bugs of a folder. All measured tests may find a bug of any folder.
AREAS = {
    "equations": ("equations/test_*.py",),
    "statistics": ("statistics/test_*.py",),
    "experience": ("experience/test_*.py",),
    "training": ("training/test_*.py",),
    "algorithms": (
        "algorithms/test_*.py",
        "contract/test_update_oracles.py",
        "contract/test_language_oracles.py",
    ),
}
FOLDERS = ("equations", "statistics", "experience", "training", "algorithms")
ELSEWHERE = {"part": "processes"}  # whose tests have another name
EAGER = ("equations", "statistics")  # their functions are called as they are, mostly
LIMIT = 1_800.0  # seconds for one file of tests


def rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a jsonl file, or none where there is no file."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines()]


def files_of_tests(here: Path, folders: list[str], names: Sequence[str] = ()) -> list[Path]:
    """Return the files of tests that are measured for the folders; of ``names`` only, if any."""
    patterns = [pattern for folder in folders for pattern in AREAS[folder]]
    found = [path for pattern in patterns for path in sorted((here / "tests").glob(pattern))]
    return [path for path in found if not names or path.stem in names]


class Chart:
    """What every measured test runs, and how many seconds it takes."""

    def __init__(self, file: Path, here: Path, alive: swap.Living):
        self.file, self.here, self.alive = file, here, alive
        self.package = here / "sterling"
        self.files = sorted(
            str(path.relative_to(self.package))
            for folder in FOLDERS
            for path in (self.package / folder).rglob("*.py")
        )
        self.code = _digest([self.package / f for f in self.files])
        self.seconds: dict[str, float] = {}
        self.lines: dict[tuple[str, int], set[str]] = defaultdict(set)
        self.known: set[str] = set()
        self.compiled: dict[str, bool] = {}  # whether a file of tests compiles what it tests
        for row in rows(file):
            self._take(row)

    def measure(self, folder: str, names: Sequence[str] = ()) -> None:
        """Run the tests of a folder's area, file by file, where that was not done before."""
        for path in files_of_tests(self.here, [folder], names):
            if self._name(path) not in self.known:
                self._measure(path)

    def tests_of(self, mutant: Mutant, seconds: float) -> list[str]:
        """Return the tests to run for a mutant, the quickest of its own folder first.

        First come those that run its statement. A statement of a compiled function is seen only
        in the test that traces it, and what runs in other processes not at all: so the rest of
        those files follow (those of the same parameters before others), and the file that is named
        like the module. Together they take ``seconds``.
        """
        hit = self.lines.get((mutant.file, mutant.statement), set())
        stem = Path(mutant.file).stem
        files = {f"tests/{mutant.folder}/test_{ELSEWHERE.get(stem, stem)}.py"}
        files |= {file for test in hit if self.compiled[file := test.split("::")[0]]}
        found = hit | {t for t in self.seconds if t.split("::")[0] in files}
        own = f"tests/{mutant.folder}/"
        cases = {_case(test) for test in hit} - {""}  # what one of them compiled others may run

        def rank(test: str) -> tuple[bool, bool, bool, float]:
            known, alike = test in hit, _case(test) in cases
            near = known or alike
            return not known, not near, not test.startswith(own), self.seconds[test]

        order = sorted(found, key=rank)
        chosen, spent = [], 0.0
        for test in order:
            spent += self.seconds[test]
            if spent <= seconds or not chosen:
                chosen.append(test)
        return chosen

    def _name(self, path: Path) -> str:
        return f"{path.relative_to(self.here)} {_digest([path])} {self.code}"

    def _measure(self, path: Path) -> None:
        lines: dict[str, set[int]] = defaultdict(set)
        listener = trial.Listener(self.file.with_name("measured.jsonl"), None, lines)

        def prepare(_: trial.Listener) -> None:
            sys.dont_write_bytecode = False  # of tests
            swap.watch(self.package, self.files, self.alive, lambda f, n: lines[f].add(n))

        test = str(path.relative_to(self.here))
        end = trial.run(prepare, listener, [test], self.here, LIMIT)
        found = [row for row in rows(listener.answer) if "test" in row]
        good = [row for row in found if row["outcome"] == "passed"]
        row = {"file": self._name(path), "end": end, "tests": good}
        row["failed"] = [row["test"] for row in found if row["outcome"] == "failed"]
        with self.file.open("a") as out:
            out.write(json.dumps(row) + "\n")
        self._take(row)
        spent = sum(each["seconds"] for each in found)
        print(f"measured {test}: {len(good)} tests, {spent:.0f} s, {end}, failed: {row['failed']}")
        sys.stdout.flush()

    def _take(self, row: dict[str, Any]) -> None:
        path = self.here / row["file"].split()[0]
        if not path.exists() or row["file"] != self._name(path):
            return  # of another version
        self.known.add(row["file"])
        eager = any(f"tests/{area}/" in str(path) for area in EAGER)
        name = str(path.relative_to(self.here))
        self.compiled[name] = not eager or "jit(" in path.read_text()
        for test in row["tests"]:
            self.seconds[test["test"]] = test["seconds"]
            for file, numbers in test["lines"].items():
                for number in numbers:
                    self.lines[file, number].add(test["test"])


def _case(test: str) -> str:
    """Return the parameters in a test's name, or nothing."""
    return test.partition("[")[2]


def _digest(paths: list[Path]) -> str:
    found = hashlib.sha256()
    for path in paths:
        found.update(path.read_bytes())
    return found.hexdigest()[:12]
