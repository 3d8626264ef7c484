"""All algorithms on the same environments, at equal steps and at equal time: `make shootout`.

    python benchmarks/shootout/run.py [--only CartPole-v1 ...] [--algorithms ppo ...] [--slow]
                                      [--busy] [--list] [--page]

contest.json sets environments, steps, seconds and seeds. Every algorithm learns twice with its
default settings: for the same number of steps, and for as many steps as it makes in the same number
of seconds, all seeds together, on this machine. The second number follows from the first run's
speed without its compilation; so schedules over the run fit, as they would not if the clock ended
it. Runs are resumable, in runs/shootout/. Settings, result and thinned log of a finished run are
one file in benchmarks/shootout/results/ENVIRONMENT/steps or .../seconds, which is committed;
docs/shootout.md is made from them. ``--busy``: the machine has other work, so only the
runs of equal steps are made.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402
from benchmarks.shootout import page  # noqa: E402

RUNS = ROOT / "runs" / "shootout"
MOST = 20  # times the equal steps that a run of equal seconds makes at most
ROWS = 100  # of a kept log


def main() -> None:
    """Make the runs that were asked for and are missing, then the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="environments, such as Hopper-v5")
    parser.add_argument("--algorithms", nargs="*", help="algorithms, such as sac")
    parser.add_argument("--slow", action="store_true", help="also environments that take hours")
    parser.add_argument("--busy", action="store_true", help="only the runs of equal steps")
    parser.add_argument("--list", action="store_true", help="print what is missing and leave")
    parser.add_argument("--page", action="store_true", help="only write docs/shootout.md anew")
    arguments = parser.parse_args()
    for contest, algorithm in [] if arguments.page else chosen(arguments):
        for budget in ("steps",) if arguments.busy else ("steps", "seconds"):
            if page.result_file(contest, budget, algorithm).exists():
                continue
            if arguments.list:
                print(contest["environment"], budget, algorithm)
                continue
            learn(contest, algorithm, budget, arguments.busy)
    if not arguments.list:
        page.write()


def chosen(arguments: argparse.Namespace) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the environments and algorithms that were asked for."""
    for contest in page.contests():
        world = contest["environment"]
        wanted = world in arguments.only if arguments.only else not contest.get("slow", False)
        if not (wanted or (arguments.slow and not arguments.only)):
            continue
        for algorithm in contest["algorithms"]:
            if not arguments.algorithms or algorithm in arguments.algorithms:
                yield contest, algorithm


def learn(contest: dict[str, Any], algorithm: str, budget: str, busy: bool) -> None:
    """Train (or go on training) one run of an algorithm, and keep what is evidence."""
    import sterling
    from sterling.report.live.live_progress import Progress

    begun = evidence.begin()  # exits before training if the code differs from its commit
    world, seeds = contest["environment"], contest["seeds"]
    steps = contest["steps"] if budget == "steps" else steps_in_time(contest, algorithm)
    path = RUNS / world / budget / algorithm
    sinks = [Progress(steps, seeds, f"{algorithm} {world}, equal {budget}")]
    if (path / "config.json").exists():
        run = sterling.resume(path, sinks=sinks)
    else:
        run = sterling.train(algorithm, world, steps=steps, seeds=seeds, out=path, sinks=sinks)
    keep(path, page.result_file(contest, budget, algorithm), begun, busy)
    print(algorithm, world, f"equal {budget}:", run.result["final"]["return"]["estimate"])


def steps_in_time(contest: dict[str, Any], algorithm: str) -> int:
    """Return the steps that an algorithm makes in the seconds of the contest."""
    first = page.read(page.result_file(contest, "steps", algorithm))["result"]
    learning = first["wall_seconds"] - first["compile_seconds"]
    steps = int(contest["seconds"] * first["steps"] / learning)
    return max(min(steps, MOST * contest["steps"]), 1)


def keep(path: Path, file: Path, begun: evidence.Block, busy: bool) -> None:
    """Write settings, result and a thinned log of a run, and where they come from."""
    config, result = page.read(path / "config.json"), page.read(path / "result.json")
    rows = [json.loads(row) for row in (path / "metrics.jsonl").read_text().splitlines()]
    thin = rows[:: max(1, len(rows) // ROWS)]
    thin += rows[-1:] if thin[-1] is not rows[-1] else []
    kept = [{name: each for name, each in row.items() if wanted(name)} for row in thin]
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"config": config, "result": result, "log": kept, "busy": busy}
    evidence.write(file, content, begun, result["seeds"])


def wanted(column: str) -> bool:
    """Whether a column of a log is kept: counts, times and returns."""
    return "/" not in column or column in ("data/return", "evaluation/return")


if __name__ == "__main__":
    main()
