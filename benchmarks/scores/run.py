"""Learn to the published scores: `make scores`.

Every task of tasks.json is one resumable run in runs/scores/. When it ends, its result, curve,
settings, commit and hardware are written to benchmarks/scores/results/, which is committed, and
docs/scores.md is made anew from all of them.

    python benchmarks/scores/run.py [--only ppo-CartPole-v1 ...] [--slow] [--list] [--page]
"""

from __future__ import annotations

import argparse
import json
import shutil
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
        learn(task)
    write_page(tasks)


def name(task: dict[str, Any]) -> str:
    """ppo-HalfCheetah-v5"""
    return f"{task['algorithm']}-{task['environment'].replace('/', '_')}"


def learn(task: dict[str, Any]) -> None:
    """Train (or go on training) one task and keep its evidence."""
    import sterling
    from sterling.report.progress import Progress

    path = RUNS / name(task)
    seeds = task["seeds"]  # a number, or a list where settings were tuned on the first ones
    progress = Progress(task["steps"], seeds if isinstance(seeds, int) else len(seeds), name(task))
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
    print(name(task), run.result["final"]["return"])


def keep(task: dict[str, Any], path: Path) -> None:
    """Copy what is evidence: settings, versions, hardware, commit, result, thin curve, picture."""
    config = json.loads((path / "config.json").read_text())
    result = json.loads((path / "result.json").read_text())
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    thin = rows[:: max(1, len(rows) // 50)]
    curve = [{key: row[key] for key in ("step", "data/return")} for row in thin]
    evidence = {"task": task, "result": result, "config": config, "curve": curve}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name(task)}.json").write_text(json.dumps(evidence, indent=1) + "\n")
    shutil.copy(path / "curve.png", RESULTS / f"{name(task)}.png")


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
    pictures = [t for t in tasks if (RESULTS / f"{name(t)}.png").exists()]
    lines += ["## Learning curves", ""]
    lines += [f"![{name(t)}](../benchmarks/scores/results/{name(t)}.png)\n" for t in pictures]
    (ROOT / "docs" / "scores.md").write_text("\n".join(lines).rstrip() + "\n")


def score(result: dict[str, Any]) -> Any:
    """The estimate of a result, with the interval that is usual now, whenever it was made."""
    from sterling.statistics import estimate

    return estimate(result["final"]["return"]["per_seed"])


def _row(task: dict[str, Any]) -> str:
    file = RESULTS / f"{name(task)}.json"
    head = f"| {task['algorithm']} {task['environment']} | {task['steps']:,} "
    tail = f"{task['at_least']} | {task['published']} |"
    if not file.exists():
        return f"{head}| {task['seeds']} | not run yet | {tail} | |"
    result = json.loads(file.read_text())["result"]
    made = score(result)
    reached = "reached" if made.value >= task["at_least"] else "**below**"
    return (
        f"{head}| {len(result['seeds'])} | {made} | {tail} "
        f"{result['steps_per_second']:,.0f} | {reached} |"
    )


def _peers() -> list[str]:
    """What a peer reaches over seeds where its published figure is of one run (peer.py)."""
    from sterling.statistics import estimate

    lines = []
    for file in sorted(RESULTS.glob("peer-*.json")):
        found = json.loads(file.read_text())
        scores = list(found["return"].values())
        task, version = file.stem.removeprefix("peer-"), found["versions"]["stable-baselines3"]
        lines += [
            f"{task.replace('-', ' ', 1)} with Stable-Baselines3 {version} at its zoo's settings, "
            f"{len(scores)} seeds, judged alike "
            f"(`benchmarks/scores/peer.py`): {estimate(scores)}; each seed's "
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
