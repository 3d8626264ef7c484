"""Train a committed score again at the commit that it names: does it come out to the last digit?

    python benchmarks/reproducible/earlier.py [--only td3-Pendulum-v1 ...]

The repository is cloned at that commit and its own `benchmarks/scores/run.py` trains the task with
the packages that are installed here. Writes benchmarks/results/earlier.json; the page is
benchmarks/results/reproducible.md (run.py).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "benchmarks" / "results" / "earlier.json"
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

TASKS = {  # each with the commit whose tree holds the score as it was first written
    "td3-Pendulum-v1": "2e643f6",
    "dqn-CartPole-v1": "c404c21",
}


def main() -> None:
    """Train what was asked for, each at its commit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=TASKS, default=list(TASKS))
    for name in parser.parse_args().only:
        begun = evidence.begin()
        found = again(name, TASKS[name])
        print(name, found, flush=True)
        evidence.write_part(OUT, name, found, begun, found["seeds"])


def again(name: str, holder: str) -> dict[str, Any]:
    """What the file at ``holder`` says, and what its commit comes to here."""
    file = f"benchmarks/scores/results/{name}.json"
    git = ["git", "-C", str(ROOT)]
    written = json.loads(subprocess.check_output([*git, "show", f"{holder}:{file}"], text=True))
    commit, result = written["config"]["git"]["commit"], written["result"]
    with tempfile.TemporaryDirectory(prefix="sterling-earlier-") as scratch:
        clone = Path(scratch) / "sterling"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        subprocess.run(["git", "-C", str(clone), "checkout", "-q", commit], check=True)
        words = [sys.executable, "benchmarks/scores/run.py", "--only", name]
        own = os.environ | {"PYTHONPATH": str(clone)}
        subprocess.run(words, cwd=clone, env=own, check=True, stdout=subprocess.DEVNULL)
        made = json.loads((clone / file).read_text())["result"]
    return {
        "at": commit,
        "seeds": result["seeds"],
        "written": result["final"]["return"]["per_seed"],
        "here": made["final"]["return"]["per_seed"],
    }


if __name__ == "__main__":
    main()
