"""Write ``durations.json`` from files of pytest's ``--junitxml``.

``python -m checks.read_durations FILE.xml...``: tests that the files do not have keep their
durations, unless their file of tests is gone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from checks import durations
from checks.name_tables import ROOT

SHORTEST = 0.5  # seconds; shorter tests are not listed


def read(files: Iterable[Path]) -> dict[str, float]:
    """Return the seconds of every test that ran."""
    found = {}
    for file in files:
        for case in ElementTree.parse(file).iter("testcase"):
            if case.find("skipped") is None:
                place = case.get("classname", "").replace(".", "/") + ".py"
                found[f"{place}::{case.get('name')}"] = float(case.get("time", "0"))
    return found


def merge(known: dict[str, float], measured: dict[str, float]) -> dict[str, float]:
    """Return the durations to write: rounded, in order, without short ones."""
    together = {**known, **measured}
    return {
        name: round(seconds, 1) for name, seconds in sorted(together.items()) if seconds >= SHORTEST
    }


def main(files: list[str]) -> None:
    """Write the file."""
    known = durations.load() if durations.FILE.exists() else {}
    known = {name: each for name, each in known.items() if (ROOT / name.split("::")[0]).exists()}
    merged = merge(known, read(map(Path, files)))
    durations.FILE.write_text(json.dumps(merged, indent=0) + "\n")
    print(f"{len(merged)} tests of {SHORTEST} s or more, {sum(merged.values()) / 60:.0f} minutes")


if __name__ == "__main__":
    main(sys.argv[1:])
