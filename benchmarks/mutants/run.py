"""Plant small bugs one at a time and see whether a test fails: do the tests hold the numbers?

    python benchmarks/mutants/run.py                       # all folders; resumes where it stopped
    python benchmarks/mutants/run.py --only equations      # one folder
    python benchmarks/mutants/run.py --again survived      # those that no test found, once more
    python benchmarks/mutants/run.py --report              # write the tables from what was run
    python benchmarks/mutants/run.py --page                # only write the page anew

A copy of the repository under the temporary folder (``--scratch``) is where bugs are planted and
where measured coverage and outcomes are kept; the working tree is only read.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import coverage_map
import report
import scratch as copy
import swap
import trial
from sites import Mutant, every, planted, sample

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

COUNTS = {"equations": 160, "experience": 70, "statistics": 140, "training": 70}
COUNTS |= {"algorithms": 90}
TRAINING = ("loop", "checkpoint", "leaves", "evaluate", "agent", "lap", "longer", "run", "single")
TRAINING += ("trained", "guard", "folder", "logbook", "scorer", "player", "clock", "until", "part")


def main() -> None:
    """Measure coverage where it is not known, try every mutant, write the report."""
    options = _options()
    if options.page:
        report.write_page(options.out)
        return
    begun = evidence.begin()
    evidence.refuse_changes(ROOT, ("tests",))  # they decide what is found
    work = options.scratch
    work.mkdir(parents=True, exist_ok=True)
    lock = (work / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"another run plants bugs in {work}: wait for it, or give another --scratch")
    here = work / "repository"
    copy.copied(ROOT, here)
    wanted = _wanted(here / "sterling", options)
    if not options.report:
        areas = options.only, options.tests
        copy.entered(here, options.only, coverage_map.files_of_tests(here, *areas))
        alive = swap.living(here / "sterling")
        chart = coverage_map.Chart(work / "coverage.jsonl", here, alive)
        campaign = Campaign(work, here, alive, chart, options)
        for folder in options.only:
            chart.measure(folder, options.tests)
            for mutant in wanted:
                if mutant.folder == folder:
                    campaign.attempt(mutant)
        campaign.control()
    report.write(work, wanted, options, begun)


def _wanted(package: Path, options: argparse.Namespace) -> list[Mutant]:
    chosen = []
    for folder in options.only:
        files = sorted(str(p.relative_to(package)) for p in (package / folder).rglob("*.py"))
        if folder == "training":  # the loop, checkpoints and what runs around them
            files = [f for f in files if Path(f).stem in TRAINING]
        count = round(COUNTS[folder] * options.share)
        chosen += sample(every(package, files), count, options.seed)
    return [m for m in chosen if not options.file or Path(m.file).stem in options.file]


class Campaign:
    """Trials of mutants, each appended to a file as soon as it is known."""

    def __init__(
        self,
        work: Path,
        here: Path,
        alive: swap.Living,
        chart: coverage_map.Chart,
        options: argparse.Namespace,
    ):
        self.work, self.here, self.alive, self.chart = work, here, alive, chart
        self.options, self.known = options, report.trials(work)
        self.read = json.loads(report.READ.read_text())

    def attempt(self, mutant: Mutant) -> None:
        """Try one mutant unless its outcome is known, or it was read and found equivalent."""
        before = self.known.get((mutant.name, mutant.digest))
        again = before and before["outcome"] in self.options.again
        if before and (not again or report.is_equivalent(before | {"read": self._read(mutant)})):
            return
        began = time.monotonic()
        tests = self.chart.tests_of(mutant, self.options.seconds)
        row = self._tried(mutant, tests) if tests else {"outcome": "uncovered"}
        row |= {"tests": len(tests), "seconds": round(time.monotonic() - began, 1)}
        self._keep({"name": mutant.name, "digest": mutant.digest} | row)
        where = f"{mutant.file}:{mutant.line} {mutant.operator}"
        print(f"{row['outcome']:9} {row['seconds']:6.1f} s  {where}", flush=True)

    def _read(self, mutant: Mutant) -> str:
        return self.read.get(mutant.name, "")

    def _tried(self, mutant: Mutant, tests: list[str]) -> dict[str, Any]:
        tree = planted(self.here / "sterling", mutant)
        path = self.here / "sterling" / mutant.file
        text, stamp = path.read_bytes(), path.stat()

        def prepare(_: trial.Listener) -> str | None:
            alive = self.alive[mutant.file]
            found = swap.exchange(tree, path, [mutant.function], alive)
            return None if found else "no function that lives has that name"

        try:  # for the processes that tests start
            path.write_text(ast.unparse(tree))
            return self._outcome(prepare, tests)
        finally:
            path.write_bytes(text)
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))

    def _outcome(self, prepare: Any, tests: list[str]) -> dict[str, Any]:
        expected = {test: self.chart.seconds.get(test, 30.0) for test in tests}
        listener = trial.Listener(self.work / "answer.jsonl", expected)
        limit = 600 + 30 * sum(expected.values())
        end = trial.run(prepare, listener, tests, self.here, limit)
        rows = coverage_map.rows(listener.answer)
        last = rows[-1] if rows else {}
        if "killed" in last:
            return {"outcome": "killed", "by": last["killed"], "reason": last["reason"]}
        if "refused" in last:
            return {"outcome": "refused", "reason": last["refused"]}
        if end != "done":
            return {"outcome": "killed", "by": last.get("started", "collection"), "reason": end}
        return {"outcome": "survived" if last.get("finished") == 0 else "refused"}

    def _keep(self, row: dict[str, Any]) -> None:
        self.known[row["name"], row["digest"]] = row
        with (self.work / "trials.jsonl").open("a") as out:
            out.write(json.dumps(row) + "\n")

    def control(self) -> None:
        """Run every test that killed a mutant on the code without bugs: all must pass."""
        of = {name: row for (name, _), row in self.known.items() if row.get("by")}
        killers = sorted({of[m].get("by") for m in of if m.split("/")[0] in self.options.only})
        killers = [test for test in killers if "::" in test]
        found = self._outcome(lambda _: None, killers) if killers else {"outcome": "survived"}
        (self.work / "control.json").write_text(json.dumps(found | {"tests": len(killers)}))
        print(f"control: {len(killers)} tests without a bug: {found}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=COUNTS, default=list(COUNTS), help="folders")
    parser.add_argument("--file", nargs="+", default=[], help="only files of these names (no .py)")
    parser.add_argument("--tests", nargs="+", default=[], help="only these files of tests")
    parser.add_argument("--share", type=float, default=1.0, help="of the usual count of mutants")
    parser.add_argument("--seed", type=int, default=33)
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests for a mutant")
    parser.add_argument("--again", nargs="+", default=[], help="outcomes to try once more")
    parser.add_argument("--report", action="store_true", help="only write the tables")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "mutants.md")
    folder = Path(tempfile.gettempdir()) / "sterling-mutants"
    parser.add_argument("--scratch", type=Path, default=folder)
    return parser.parse_args()


if __name__ == "__main__":
    main()
