"""Record a whole run of ``make test-slow``, and say how long ago the last one was.

    python checks/slow_runs.py record build/slow/*.xml   # after a run; exit 1 where tests failed
    python checks/slow_runs.py parts 3/6                 # after a part, recorded with the last one
    python checks/slow_runs.py last                      # one line, for .ci/run

A run is whole if both groups of tests came to their end, in all parts of one commit. The record,
``slow_runs.json``, names the commit, the counts and every test that failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "checks" / "slow_runs.json"
REPORTS = ROOT / "build" / "slow"
GROUPS = ("annotated", "others")  # processes that execute annotations of shapes, or do not
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402


def read(reports: list[Path]) -> dict[str, Any]:
    """Return the counts, the names of failed tests and the seconds of pytest's JUnit reports."""
    found: dict[str, Any] = {"passed": 0, "skipped": 0, "failed": [], "test_seconds": 0.0}
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            kinds = {child.tag for child in case}
            found["test_seconds"] += float(case.get("time", 0))
            if kinds & {"failure", "error"}:
                found["failed"].append(f"{case.get('classname')}::{case.get('name')}")
            else:
                found["skipped" if "skipped" in kinds else "passed"] += 1
    return found | {
        "failed": sorted(set(found["failed"])),
        "test_seconds": round(found["test_seconds"]),
    }


def part_reports(part: str, commit: str, folder: Path = REPORTS) -> list[Path]:
    """Return the reports of all parts, of which ``part`` is one: 3/6 is the third of six."""
    count = int(part.partition("/")[2])
    numbers = range(1, count + 1)
    return [folder / f"{g}-{i}-of-{count}-{commit[:10]}.xml" for g in GROUPS for i in numbers]


def record(reports: list[Path], command: str = "make test-slow") -> int:
    """Write the record of a whole run; return 0 if every test passed and 1 otherwise."""
    there = [report for report in reports if report.exists()]
    wanted = max(len(reports), len(GROUPS))
    if len(there) < wanted:
        print(f"not a whole run, so it is not recorded: {len(there)} reports of {wanted}")
        return 1
    found = read(reports)
    begun = evidence.begin(ROOT)
    begun["command"] = command
    evidence.write(RECORD, found, begun, seeds="in each test")
    print(f"make test-slow: {counts(found)}; recorded in {RECORD.relative_to(ROOT)}")
    return 1 if found["failed"] else 0


def counts(found: dict[str, Any]) -> str:
    """Return how many tests passed, failed and were skipped, as words."""
    numbers = (found["passed"], len(found["failed"]), found["skipped"])
    return "{} passed, {} failed, {} skipped".format(*numbers)


def last(path: Path = RECORD, root: Path = ROOT) -> str:
    """Return a line that says how many commits ago ``make test-slow`` was last run whole."""
    if not path.exists():
        return "make test-slow: no whole run is on file; run it, then commit checks/slow_runs.json"
    found = json.loads(path.read_text())
    begun = found["provenance"][0]
    command = ["git", "rev-list", "--count", f"{begun['commit']}..HEAD"]
    counted = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    ago = f"{counted.stdout.strip()} commits ago" if counted.returncode == 0 else "at a commit"
    place = f"{begun['commit'][:10]}, {begun['date'][:10]}"
    return f"make test-slow: last run whole {ago} ({place}): {counts(found)}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"]:
        sys.exit(record([Path(each) for each in sys.argv[2:]]))
    if sys.argv[1:2] == ["parts"]:
        own = part_reports(sys.argv[2], evidence.begin(ROOT)["commit"])
        sys.exit(record(own, f"make test-slow PART=1/{len(own) // 2} and all others"))
    print(last())
