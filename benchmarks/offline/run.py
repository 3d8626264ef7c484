"""Known orderings of offline learners on logs of our own agents: `make offline`.

    python benchmarks/offline/run.py [--data FOLDER] [--only Hopper-v5/medium-replay ...] [--page]

Every log is made by `sterling data make` where it is not there yet; every pair of a log and a
learner is one resumable run in runs/offline/. Results go to benchmarks/offline/results/, which is
committed, and the page benchmarks/results/offline.md is made anew from all of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RESULTS, RUNS = HERE / "results", ROOT / "runs" / "offline"
PAGE = ROOT / "benchmarks" / "results" / "offline.md"
TASKS = json.loads((HERE / "tasks.json").read_text())


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT / "runs" / "data", help="the logs")
    parser.add_argument("--only", nargs="*", help="logs, such as Hopper-v5/medium-replay")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    chosen = parser.parse_args()
    for log in logs() if not chosen.page else ():
        if not chosen.only or "/".join(log) in chosen.only:
            path = made(chosen.data, *log)
            for algorithm in TASKS["algorithms"]:
                learn(algorithm, *log, path)
    PAGE.write_text("\n".join(page()) + "\n")


def logs() -> list[tuple[str, str]]:
    """Environment and quality of every log."""
    return [(world, quality) for world, all_ in TASKS["data"].items() for quality in all_]


def made(folder: Path, world: str, quality: str) -> Path:
    """The log's folder; made by the command line where it is not there."""
    path = folder / f"{world}-{quality}"
    if not path.exists():
        words = ["data", "make", world, "--quality", quality, "--seed", "0", "--out", str(path)]
        words += ["--size", str(TASKS["size"][quality]), "--agents", str(folder / "agents")]
        subprocess.run([sys.executable, "-m", "sterling", *words], check=True)
    return path


def learn(algorithm: str, world: str, quality: str, data: Path) -> None:
    """Train (or go on training) one learner on one log and keep its evidence."""
    import sterling
    from sterling.report.live.live_progress import Progress

    evidence.begin()  # refuses a changed tree before hours are spent
    name = f"{algorithm}-{world}-{quality}"
    path, seeds = RUNS / name, TASKS["seeds"]
    sinks = [Progress(TASKS["updates"], seeds, name)]
    if (path / "config.json").exists():
        run = sterling.resume(path, sinks=sinks)
    else:
        run = sterling.train(
            algorithm,
            world,
            data=data,
            updates=TASKS["updates"],
            seeds=seeds,
            out=path,
            sinks=sinks,
            evaluate_episodes=10,
            preset=False,
            **TASKS["algorithms"][algorithm],
            **TASKS["worlds"].get(world, {}).get(algorithm, {}),  # long episodes, few updates
        )
    log = sterling.Dataset(data)
    config = json.loads((path / "config.json").read_text())
    facts = {
        "mean": float(log.returns.mean()),
        "best_tenth": float(log.top(0.1).returns.mean()),
        "rows": log.rows,
        "hash": log.hash,
        "reference": log.facts.reference,
    }
    run.result["data"]["path"] = data.name  # wherever it lay on this machine
    content = {"world": world, "quality": quality, "log": facts, "result": run.result}
    content["config"] = {"config": config["config"]}
    begun = evidence.of_run(config, f"python benchmarks/offline/run.py --only {world}/{quality}")
    evidence.write(RESULTS / f"{name}.json", content, begun, run.result["seeds"])
    print(name, run.result["final"]["return"])


def page() -> list[str]:
    """What was found, as Markdown."""
    found = {
        (each["result"]["algorithm"], each["world"], each["quality"]): each
        for each in (json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json")))
    }
    names = list(TASKS["algorithms"])
    lines = [
        "# Offline learners on logs of our own agents",
        "",
        f"`make offline`: {TASKS['updates']:,} updates of batches of 256, {TASKS['seeds']} seeds, "
        "last policy, deterministic, 10 episodes per seed; networks and step sizes in",
        "benchmarks/offline/tasks.json. Returns, with the mean's 95 % interval over seeds, "
        "computed by today's `sterling.statistics.estimate`; in the "
        "log's columns its mean and the mean of its best tenth.",
        "",
        "| log | rows | its mean | best tenth | " + " | ".join(names) + " |",
        "|" + "---|" * (4 + len(names)),
    ]
    for world, quality in logs():
        cells = [found.get((name, world, quality)) for name in names]
        if not any(cells):
            continue
        log = next(each["log"] for each in cells if each)
        facts = [f"{log['rows']:,}", f"{log['mean']:,.0f}", f"{log['best_tenth']:,.0f}"]
        lines.append(
            f"| {world} {quality} | " + " | ".join(facts + [_cell(c) for c in cells]) + " |"
        )
    lines += ["", "## Orderings", "", *_orderings(found)]
    return [*lines, "", "## Where each number comes from", "", *_origins()]


def _origins() -> list[str]:
    """Commit, date, machine and versions of every file; equal ones are told once."""
    told: dict[str, list[str]] = {}
    for file in sorted(RESULTS.glob("*.json")):
        said = " ".join(line.strip("*") for line in evidence.lines(file) if line)
        told.setdefault(said, []).append(file.stem)
    return [f"* {', '.join(names)}: {said}" for said, names in told.items()]


def _cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    from sterling.references.return_bounds import return_bounds
    from sterling.statistics import estimate

    result = found["result"]
    scores, bounds = result["final"]["return"]["per_seed"], return_bounds(result["environment"])
    made = estimate(scores, within=bounds)
    return f"{made.value:,.0f} [{made.low:,.0f}, {made.high:,.0f}]"


def _orderings(found: dict[tuple[str, str, str], Any]) -> list[str]:
    """P(a run of one is better than a run of the other), over all logs of a kind."""
    from sterling.statistics import improve

    lines = []
    for each in TASKS["orderings"]:
        for better in each["better"]:
            pairs = [
                (found[better, world, quality], found[each["than"], world, quality])
                for world, quality in logs()
                if quality in each["data"]
                and (better, world, quality) in found
                and (each["than"], world, quality) in found
            ]
            if not pairs:
                continue
            ours, theirs = (
                np.array([p[i]["result"]["final"]["return"]["per_seed"] for p in pairs]).T
                for i in (0, 1)
            )
            made = improve(ours, theirs)
            expected = each.get("expected", "more than a half")
            kind = " and ".join(each["data"])
            lines.append(
                f"* {kind} ({len(pairs)} logs): P({better} > {each['than']}) = {made} "
                f"(expected: {expected})"
            )
    return lines


if __name__ == "__main__":
    main()
