"""Learn to the published scores: `make scores`.

Every task of tasks.json is one resumable run in runs/scores/. When it ends, its result, curve,
settings, commit and hardware are written to benchmarks/scores/results/, which is committed, and
docs/scores.md is made anew from all of them.

    python benchmarks/scores/run.py [--only ppo-CartPole-v1 ...] [--slow] [--list] [--page]

With ``--seeds 0 1`` a task's seeds are learned one after another, each a run and a file of its own
that the page puts together: where all of them take longer than the machine is there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results"
RUNS = ROOT / "runs" / "scores"


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="names of tasks, such as ppo-CartPole-v1")
    parser.add_argument("--seeds", nargs="*", type=int, help="these alone, each in its own run")
    parser.add_argument("--slow", action="store_true", help="also the tasks that take hours")
    parser.add_argument("--list", action="store_true", help="print the tasks and leave")
    parser.add_argument("--page", action="store_true", help="only write docs/scores.md anew")
    arguments = parser.parse_args()
    tasks = json.loads((HERE / "tasks.json").read_text())
    chosen = [task for task in tasks if _wanted(task, arguments)]
    if arguments.list:
        print("\n".join(name(task) for task in tasks))
        return
    for task in [] if arguments.page else chosen:
        for seeds in [[seed] for seed in arguments.seeds or ()] or [None]:
            learn(task, seeds)
    write_page(tasks)


def name(task: dict[str, Any]) -> str:
    """ppo-HalfCheetah-v5"""
    return f"{task['algorithm']}-{task['environment'].replace('/', '_')}"


def learn(task: dict[str, Any], alone: list[int] | None = None) -> None:
    """Train (or go on training) one task, or one seed of it, and keep its evidence."""
    import sterling
    from sterling.report.progress import Progress

    named = name(task) if alone is None else f"{name(task)}-seed{alone[0]}"
    path = RUNS / named
    # Seeds are a number, or a list where settings were tuned on the first ones.
    seeds = task["seeds"] if alone is None else alone
    progress = Progress(task["steps"], seeds if isinstance(seeds, int) else len(seeds), named)
    if (path / "config.json").exists():
        run = sterling.resume(path, sinks=[progress])
    else:
        run = sterling.train(
            task["algorithm"],
            task["environment"],
            steps=task["steps"],
            seeds=seeds,
            out=path,
            sinks=[progress],
            **task.get("options", {}),
        )
    keep(task, path)
    print(named, run.result["final"]["return"])


def keep(task: dict[str, Any], path: Path) -> None:
    """Copy what is evidence: settings, versions, hardware, commit, result, thin curve, picture."""
    config = json.loads((path / "config.json").read_text())
    result = json.loads((path / "result.json").read_text())
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    thin = rows[:: max(1, len(rows) // 50)]
    curve = [{key: row[key] for key in ("step", "data/return")} for row in thin]
    evidence = {"task": task, "result": result, "config": config, "curve": curve}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{path.name}.json").write_text(json.dumps(evidence, indent=1) + "\n")
    shutil.copy(path / "curve.png", RESULTS / f"{path.name}.png")


def kept(task: dict[str, Any]) -> list[Path]:
    """The files of evidence of a task: one of all its seeds, or one of each that was learned."""
    whole = RESULTS / f"{name(task)}.json"
    return [whole] if whole.exists() else sorted(RESULTS.glob(f"{name(task)}-seed*.json"))


def write_page(tasks: list[dict[str, Any]]) -> None:
    """docs/scores.md from the results that are there."""
    lines = [
        "# Scores beside the published ones",
        "",
        "Made by `make scores` (`benchmarks/scores/run.py`); each row is a file in",
        "`benchmarks/scores/results/` with settings, seeds, curve, commit and hardware. A score is",
        "the mean over seeds of the *last* policy's deterministic return (20 episodes each), with",
        "its 95 % interval over seeds (`sterling.statistics.estimate`, docs/statistics.md).",
        "Published figures have other protocols, named beside them; `sterling check-scores` tells",
        "them apart.",
        "",
        "| task | steps | seeds | Sterling [95 % interval] | at least | published | steps/s | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_row(task) for task in tasks]
    lines += ["", *_peers()]
    lines += ["## Learning curves", ""]
    names = [file.stem for task in tasks for file in kept(task)]
    lines += [f"![{each}](../benchmarks/scores/results/{each}.png)\n" for each in names]
    (ROOT / "docs" / "scores.md").write_text("\n".join(lines).rstrip() + "\n")


def score(results: list[dict[str, Any]]) -> Any:
    """The estimate over all seeds of some results, with the interval that is usual now, within what
    the returns of their environment cannot leave."""
    from sterling.references.bounds import return_bounds
    from sterling.statistics import headline

    said = results[0]["final"]["return"].get("within")
    within = said or return_bounds(results[0]["environment"])
    scores = [each for one in results for each in one["final"]["return"]["per_seed"]]
    return headline(scores, within=within)


def _row(task: dict[str, Any]) -> str:
    results = [json.loads(file.read_text())["result"] for file in kept(task)]
    head = f"| {task['algorithm']} {task['environment']} | {task['steps']:,} "
    tail = f"{task['at_least']} | {task['published']} |"
    if not results:
        return f"{head}| {task['seeds']} | not run yet | {tail} | |"
    made = score(results)
    reached = "**below**"
    if made.made is not None and made.made.value >= task["at_least"]:
        reached = "reached"
    seeds = sum(len(result["seeds"]) for result in results)
    asked = task["seeds"] if isinstance(task["seeds"], int) else len(task["seeds"])
    speed = statistics.median(result["steps_per_second"] for result in results)
    return (
        f"{head}| {seeds}{f' of {asked}' if seeds < asked else ''} | {made} | {tail} "
        f"{speed:,.0f} | {reached} |"
    )


def _peers() -> list[str]:
    """What a peer reaches over seeds where its published figure is of one run (peer.py)."""
    from sterling.references.bounds import return_bounds
    from sterling.statistics import estimate

    lines = []
    for file in sorted(RESULTS.glob("peer-*.json")):
        found = json.loads(file.read_text())
        scores = list(found["return"].values())
        made = estimate(
            scores, within=return_bounds(file.stem.removeprefix("peer-").partition("-")[2])
        )
        task, version = file.stem.removeprefix("peer-"), found["versions"]["stable-baselines3"]
        lines += [
            f"{task.replace('-', ' ', 1)} with Stable-Baselines3 {version} at its zoo's settings, "
            f"{len(scores)} seeds, judged alike "
            f"(`benchmarks/scores/peer.py`): {made}; each seed's "
            f"{', '.join(f'{score:.1f}' for score in scores)}.",
            "",
        ]
    return lines


def _wanted(task: dict[str, Any], arguments: argparse.Namespace) -> bool:
    if arguments.only:
        return name(task) in arguments.only
    return arguments.slow or not task.get("slow", False)


if __name__ == "__main__":
    main()
