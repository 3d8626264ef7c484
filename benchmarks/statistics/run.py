"""Sterling's statistics against rliable and adastop as released: do they hold what they say?

    python benchmarks/statistics/run.py --out benchmarks/results/statistics.json

Simulates how often AdaStop is wrong and how many runs it saves, compares numbers on one table of
scores, and times 50,000 resamples (intervals: ``intervals.py``). The peers live in an environment
of their own. Writes the JSON and, beside it, a Markdown table.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import alone  # noqa: F401 - first of all
import ours
import report

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
NEEDED = ("rliable==1.2.0", "adastop==0.1.3", "pandas<3", "scipy")


def main() -> None:
    """Measure, write, print."""
    options = _options()
    peers = Peers(_python(options.oracle_python))
    quick = options.quick
    results: dict[str, Any] = {}
    if options.only and options.out.exists():  # the other groups stay as they were measured
        results = json.loads(options.out.read_text())
    results |= {**stamp(), "quick": quick}
    groups = {
        "speed": lambda: speed(peers, quick),
        "agree": lambda: agree(peers),
        "errors": lambda: errors(peers, quick),
        "power": lambda: powers(peers, quick),
    }
    for group, measure in groups.items():
        if not options.only or group in options.only:
            results[group] = measure()
            _write(options.out, results | {"versions": peers.versions})
            print(f"{group}: done", flush=True)
    if options.atari:
        results["atari"] = report.atari(options.atari)
    if options.walker:
        results["walker"] = walker(options.walker)
    print(_write(options.out, results | {"versions": peers.versions}))


def _write(out: Path, results: dict[str, Any]) -> str:
    """The JSON, and the Markdown page beside it; after every group, a failure loses little."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1) + "\n")
    text = report.markdown(results)
    out.with_suffix(".md").write_text(text)
    return text


class Peers:
    """rliable and adastop under their own Python."""

    def __init__(self, python: str):
        self.python, self.versions = python, {}

    def ask(self, **request: Any) -> Any:
        """One job of oracle.py in a fresh process."""
        done = subprocess.run(
            [self.python, str(HERE / "oracle.py"), json.dumps(request)],
            capture_output=True, text=True, check=False, cwd=HERE,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"the peers failed at {request['job']}:\n{done.stderr[-2000:]}")
        answer = json.loads(done.stdout.splitlines()[-1])
        self.versions = answer["versions"]
        return answer["found"]


def speed(peers: Peers, quick: bool) -> dict[str, Any]:
    """In turns, twice: the IQM's interval of ten algorithms, ten runs, 26 tasks."""
    case = {"shape": [10, 26], "algorithms": 10, "reps": 2_000 if quick else 50_000}
    times: dict[str, list[float]] = {"sterling": [], "rliable": []}
    for _ in range(1 if quick else 2):
        times["sterling"].append(ours.speed((10, 26), case["algorithms"], case["reps"]))
        times["rliable"].append(peers.ask(job="speed", **case))
    return case | times


def agree(peers: Peers) -> dict[str, Any]:
    """One random table of 10 runs by 26 tasks, both libraries' numbers for it."""
    import numpy as np

    from sterling.statistics import estimate, improve, profile

    rng = np.random.default_rng(3)
    x, y, taus = rng.normal(size=(10, 26)), rng.normal(size=(7, 26)), [-2.0, -1.0, 0.0, 1.0]
    theirs = peers.ask(job="agree", x=x.tolist(), y=y.tolist(), taus=taus, reps=20_000)
    rows = {}
    for what in ("mean", "median", "iqm", "gap"):
        made = estimate(x, what, interval="bootstrap", draws=20_000)
        rows[what] = {"sterling": [made.value, made.low, made.high], "rliable": theirs[what]}
    rows["improve"] = {"sterling": [improve(x, y).value], "rliable": [theirs["improve"]]}
    values = profile(x, taus).value.tolist()
    rows["profile"] = {"sterling": values, "rliable": theirs["profile"]}
    return rows


def errors(peers: Peers, quick: bool) -> list[dict[str, Any]]:
    """Family-wise error of equal algorithms."""
    rows = []
    for count in (2, 3, 4):
        for interims in (1, 5):
            request = {
                "law": "normal", "count": count, "interims": interims,
                "n": 5, "alpha": 0.05, "shift": 0.0,
            }  # fmt: skip
            trials = {
                "ours": 100 if quick else 1_500 // (count - 1),
                "theirs": 20 if quick else 300,
            }
            rows.append(
                request
                | trials
                | {
                    "sterling": ours.adastop(request, trials["ours"], 2_000),
                    "adastop": peers.ask(job="adastop", trials=trials["theirs"], **request),
                }
            )
    return rows


def powers(peers: Peers, quick: bool) -> list[dict[str, Any]]:
    """Two algorithms that differ: how often it shows, and after how many runs."""
    rows = []
    for shift in (1.0, 1.5, 2.0, 3.0):
        request = {
            "law": "normal", "count": 2, "interims": 3, "n": 5, "alpha": 0.05, "shift": shift,
        }  # fmt: skip
        trials = 40 if quick else 400
        rows.append(
            request
            | {
                "trials": trials,
                "sterling": ours.adastop(request, trials, 10_000),
                "adastop": peers.ask(job="adastop", trials=trials // 2, **request),
                "t test, all 15 runs": ours.fixed(shift, 15),
            }
        )
    return rows


def walker(files: list[Path]) -> list[str]:
    """AdaStop's tutorial: one CSV per interim, a column per agent."""
    from sterling.statistics import compare

    runs: dict[str, list[float]] = {}
    for file in files:
        with file.open() as opened:
            for row in csv.DictReader(opened):
                for agent, score in row.items():
                    if agent:
                        runs.setdefault(agent, []).append(float(score))
    made = compare(runs)
    return [*str(made).splitlines(), f"runs: {made.runs}"]


def _python(given: str | None) -> str:
    """The interpreter that has the peers: ``given``, or one made in .venv-oracle."""
    if given:
        return str(Path(given).absolute())  # not resolved: a venv's python is a link
    python = ROOT / ".venv-oracle" / "bin" / "python"
    if not python.exists():
        print("making .venv-oracle with rliable and adastop (once) ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *NEEDED], check=True)
    return str(python)


def stamp() -> dict[str, str]:
    """When and by which commit a measurement was begun."""
    asked = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    now = datetime.datetime.now(datetime.UTC)
    return {"started": now.isoformat(timespec="seconds"), "commit": commit}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/statistics.json"))
    parser.add_argument("--quick", action="store_true", help="few trials: does it work?")
    groups = ("speed", "agree", "errors", "power")
    parser.add_argument("--only", nargs="+", choices=groups, default=[], help="these groups")
    parser.add_argument(
        "--oracle-python",
        help="a Python with rliable 1.2, adastop 0.1.3, pandas < 3; default: .venv-oracle, made",
    )
    parser.add_argument(
        "--atari", type=Path, help="folder of <algorithm>.json with {game: [raw scores]}"
    )
    parser.add_argument(
        "--walker", type=Path, nargs="+", help="the CSVs of adastop's tutorial, in order"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
