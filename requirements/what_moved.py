"""Print which packages differ from the lock, and which are held back by our own bounds.

python requirements/what_moved.py     # run with the Python of the environment to be looked at
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

from packaging.markers import Marker
from packaging.utils import canonicalize_name

LOCK = Path(__file__).with_name("locked.txt")
PINNED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?: ; (?P<when>[^\\]+))?")


def locked() -> dict[str, str]:
    """Return the version of every package that the lock gives this Python."""
    found = {}
    for line in LOCK.read_text().splitlines():
        pin = PINNED.match(line)
        if pin and (pin["when"] is None or Marker(pin["when"].strip()).evaluate()):
            found[canonicalize_name(pin["name"])] = pin["version"]
    return found


def installed() -> dict[str, str]:
    """Return the version of every package of this environment."""
    return {canonicalize_name(one.metadata["Name"]): one.version for one in distributions()}


def held_back() -> list[tuple[str, str, str]]:
    """Return name, installed and newest version of what a newer release exists of."""
    command = [sys.executable, "-m", "pip", "list", "--outdated", "--format=json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [(one["name"], one["version"], one["latest_version"]) for one in json.loads(done.stdout)]


def main() -> None:
    """Print both lists."""
    before, now = locked(), installed()
    moved = sorted(name for name in before if name in now and before[name] != now[name])
    print(f"{len(moved)} of {len(before)} packages are not the ones of the lock:")
    for name in moved:
        print(f"  {name:40} {before[name]:20} -> {now[name]}")
    newer = held_back()
    print(f"{len(newer)} packages have newer releases that bounds (ours or others') leave out:")
    for name, here, newest in newer:
        print(f"  {name:40} {here:20} -> {newest}")


if __name__ == "__main__":
    main()
