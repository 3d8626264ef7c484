"""Sterling's language part against transformers and TRL: sampling, slots, whole iterations.

    python benchmarks/language/speed.py --peers-python .venv-bench/bin/python

Both sides open the same folder of weights and write answers of the same length. Each is a process
that stays; they are measured in turn, A, B, A, B, ..., so that a machine whose speed drifts slows
both alike. Writes results/speed.json and, beside it, a Markdown page. With ``--shape`` a model of
published size with random weights is measured instead, on a GPU where there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import speed_report
from speed_cases import Case, all_cases, shape_cases, write_models
from speed_serve import Worker

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "benchmarks" / "speed"))  # what the other benchmarks say of a machine
from measure import peers_python  # noqa: E402

sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402


def main() -> None:
    """Measure, write, print."""
    options = _options()
    if options.page:
        results = json.loads(options.out.read_text())
        speed_report.write(options.out, results)
        return
    begun = evidence.begin()
    with tempfile.TemporaryDirectory(prefix="sterling-speed-") as scratch:
        folders = write_models(Path(scratch), options.shape, options.layers)
        cases = shape_cases(folders, options.rows) if options.shape else all_cases(folders)
        cases = [case for case in cases if not options.only or case.group in options.only]
        workers = _workers(options.peers_python, Path(scratch))
        results: dict[str, Any] = {
            "provenance": [{**begun, "seeds": [0]}],
            "versions": {name: worker.ask(do="versions") for name, worker in workers.items()},
            "repetitions": options.repetitions,
            "seconds": options.seconds,
            "threads": options.threads,
            "cases": {case.name: case.described() for case in cases},
            "measurements": {},
        }
        for group in dict.fromkeys(case.group for case in cases):
            chosen = [case for case in cases if case.group == group]
            results["measurements"] |= _measured(workers, chosen, options)
            speed_report.write(options.out, results)  # a late failure loses little
        for worker in workers.values():
            worker.close()
    print(speed_report.page(results))


def _workers(peers: str | None, scratch: Path) -> dict[str, Worker]:
    """Both sides; only Sterling sees this checkout."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    own, other = kept | {"PYTHONPATH": str(ROOT)}, kept | {"HF_HUB_OFFLINE": "1"}
    return {
        "sterling": Worker(sys.executable, HERE / "speed_ours.py", own, scratch / "ours.log"),
        "peers": Worker(peers_python(peers), HERE / "speed_peers.py", other, scratch / "peers.log"),
    }


def _measured(
    workers: dict[str, Worker], cases: list[Case], options: argparse.Namespace
) -> dict[str, list[dict[str, Any]]]:
    """All contenders of a group in turn, several times."""
    own = {"threads": options.threads}
    for case in cases:
        more = own if case.side == "peers" else {}
        workers[case.side].ask(do="prepare", name=case.name, **case.request, **more)
    found: dict[str, list[dict[str, Any]]] = {case.name: [] for case in cases}
    for number in range(options.repetitions):
        print(f"{cases[0].group}: round {number + 1} of {options.repetitions}", flush=True)
        time.sleep(options.rest)
        for case in cases:
            each = workers[case.side].ask(do="measure", name=case.name, seconds=options.seconds)
            found[case.name].append(each)
            print(f"{case.name}: {each}", flush=True)
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "results" / "speed.json")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one measurement, at least")
    parser.add_argument("--rest", type=float, default=0.0, help="seconds before each round")
    parser.add_argument("--only", nargs="+", default=[], help="these groups of cases")
    parser.add_argument("--shape", default="", help="a published size: qwen2.5-0.5b")
    parser.add_argument("--layers", type=int, default=0, help="of the shape; 0: as published")
    parser.add_argument("--rows", nargs="+", type=int, default=[8, 64, 256], help="with --shape")
    threads = len(os.sched_getaffinity(0))
    parser.add_argument("--threads", type=int, default=threads, help="of torch; default: all cores")
    parser.add_argument(
        "--peers-python",
        default=os.environ.get("STERLING_PEERS_PYTHON"),
        help="a Python with torch, transformers and trl; or set STERLING_PEERS_PYTHON",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
