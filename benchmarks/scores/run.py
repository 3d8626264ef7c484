"""Learn to the published scores: `make scores`.

Every task of tasks.json is one resumable run in runs/scores/. When it ends, its result, curve,
settings, commit and hardware are written to benchmarks/scores/results/, which is committed, and
docs/scores.md is made anew from all of them.

    python benchmarks/scores/run.py [--only ppo-CartPole-v1 ...] [--slow] [--busy] [--list] [--page]

With ``--seeds 0 1`` a task's seeds are learned one after another, each a run and a file of its own
that the page puts together: where all of them take longer than the machine is there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

if TYPE_CHECKING:
    from sterling.statistics import Estimate
    from sterling.statistics.scores.headline import Headline

RESULTS = HERE / "results"
RUNS = ROOT / "runs" / "scores"


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="names of tasks, such as ppo-CartPole-v1")
    parser.add_argument("--seeds", nargs="*", type=int, help="these alone, each in its own run")
    parser.add_argument("--slow", action="store_true", help="also the tasks that take hours")
    busy = "the machine has other work as well: no speed is shown"
    parser.add_argument("--busy", action="store_true", help=busy)
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
            learn(task, seeds, arguments.busy)
    write_page(tasks)


def name(task: dict[str, Any]) -> str:
    """ppo-HalfCheetah-v5"""
    return f"{task['algorithm']}-{task['environment'].replace('/', '_')}"


def learn(task: dict[str, Any], alone: list[int] | None = None, busy: bool = False) -> None:
    """Train (or go on training) one task, or one seed of it, and keep its evidence."""
    import sterling
    from sterling.report.live.live_progress import Progress

    evidence.begin()  # refuses a changed tree before hours are spent
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
    keep(task, path, alone, busy)
    print(named, run.result["final"]["return"])


def keep(
    task: dict[str, Any], path: Path, alone: list[int] | None = None, busy: bool = False
) -> None:
    """Copy what is evidence: settings, versions, hardware, commit, result, thin curve, picture."""
    config = json.loads((path / "config.json").read_text())
    result = json.loads((path / "result.json").read_text())
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    thin = rows[:: max(1, len(rows) // 50)]
    curve = [{key: row[key] for key in ("step", "data/return")} for row in thin]
    seeds = f" --seeds {alone[0]}" if alone else ""
    begun = evidence.of_run(config, f"python benchmarks/scores/run.py --only {name(task)}{seeds}")
    content = {"task": task, "result": result, "config": config, "curve": curve, "busy": busy}
    evidence.write(RESULTS / f"{path.name}.json", content, begun, result["seeds"])
    shutil.copy(path / "curve.png", RESULTS / f"{path.name}.png")


def kept(task: dict[str, Any]) -> list[Path]:
    """The files of evidence of a task: one of all its seeds, or one of each that was learned."""
    whole = RESULTS / f"{name(task)}.json"
    return [whole] if whole.exists() else sorted(RESULTS.glob(f"{name(task)}-seed*.json"))


def write_page(tasks: list[dict[str, Any]]) -> None:
    """docs/scores.md from the results that are there."""
    lines = [
        "# Scores compared with published ones",
        "",
        "`make scores` (`benchmarks/scores/run.py`) trains these tasks, `make scores-slow` the",
        "slow ones. Each row is a file in `benchmarks/scores/results/` with settings, seeds,",
        "curve, commit and hardware. A score is the mean over seeds of the *last* policy's",
        "deterministic return (20 episodes per seed). Its 95 % interval over seeds is recomputed",
        "from the seeds' scores by `sterling.statistics.estimate` (docs/statistics.md), so that",
        "all rows use the same method; *in the file* is the interval that was written when the",
        "run ended, with its method. Published scores were measured under other protocols, named",
        "beside them; `sterling check-scores` compares scores with them.",
        "",
        "*Our bar* is a threshold that we set, not a published score. *Against it* is the answer",
        "of `sterling check-scores`: above or below if the whole interval lies on one side of the",
        "bar, *cannot tell* if the bar lies inside the interval or there is only one seed.",
        "",
        "| task | steps | seeds | Sterling [95 % interval] | in the file | our bar | against it "
        "| published | steps/s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_row(task) for task in tasks]
    lines += ["", *_changes(tasks), *_replaced(tasks), *_peers()]
    lines += ["## Where each number comes from", ""]
    for task in tasks:
        for file in kept(task):
            said = [line.strip("*") for line in evidence.lines(file) if line]
            lines.append(f"* {file.stem}: {' '.join(said)}")
    lines += ["", "## Learning curves", ""]
    names = [file.stem for task in tasks for file in kept(task)]
    lines += [f"![{each}](../benchmarks/scores/results/{each}.png)\n" for each in names]
    (ROOT / "docs" / "scores.md").write_text("\n".join(lines).rstrip() + "\n")


def score(results: list[dict[str, Any]]) -> Headline:
    """Return what all seeds of some results came to, with the interval that is usual now, within
    what the returns of their environment cannot leave."""
    from sterling.references.return_bounds import return_bounds
    from sterling.statistics import headline

    said = results[0]["final"]["return"].get("within")
    within = said or return_bounds(results[0]["environment"])
    scores = [each for one in results for each in one["final"]["return"]["per_seed"]]
    return headline(scores, within=within)


def against(made: Estimate | None, bar: float) -> str:
    """Return where an interval lies against our bar, in the words of ``sterling check-scores``;
    without an estimate (seeds failed) it cannot be told."""
    from sterling.report.published_verdicts import band_verdict

    return band_verdict(made, float(bar), float(bar)) if made else "cannot tell"


def _row(task: dict[str, Any]) -> str:
    files = [json.loads(file.read_text()) for file in kept(task)]
    results = [each["result"] for each in files]
    head = f"| {task['algorithm']} {task['environment']} | {task['steps']:,} "
    bar = task["at_least"]
    if not results:
        return f"{head}| {task['seeds']} | not run yet | | {bar} | | {task['published']} | |"
    made = score(results)
    seeds = sum(len(result["seeds"]) for result in results)
    asked = task["seeds"] if isinstance(task["seeds"], int) else len(task["seeds"])
    rate = statistics.median(result["steps_per_second"] for result in results)
    speed = "busy machine" if any(each.get("busy") for each in files) else f"{rate:,.0f}"
    return (
        f"{head}| {seeds}{f' of {asked}' if seeds < asked else ''} | {made} | {_filed(results)} | "
        f"{bar} | {against(made.made, bar)} | {task['published']} | {speed} |"
    )


def _filed(results: list[dict[str, Any]]) -> str:
    """The interval that a file was written with, and its method."""
    from sterling.statistics import Estimate

    if len(results) > 1:
        return "one file a seed, no interval"
    made = Estimate.from_json(results[0]["final"]["return"])
    return f"{made}{'' if made.low is None else f' ({made.method})'}"


def _changes(tasks: list[dict[str, Any]]) -> list[str]:
    """Budgets, seeds and bars that are not those which were set before the first run."""
    changed = [task for task in tasks if "changed" in task]
    if not changed:
        return []
    lines = ["Budgets, seeds and bars that were changed after they were first set:", ""]
    lines += [
        f"* {task['algorithm']} {task['environment']}: {each}"
        for task in changed
        for each in task["changed"]
    ]
    return [*lines, ""]


def _replaced(tasks: list[dict[str, Any]]) -> list[str]:
    """Earlier scores of the same seeds that a newer run took the place of."""
    found = [
        f"* {task['algorithm']} {task['environment']}: {task['replaced']}"
        for task in tasks
        if "replaced" in task
    ]
    head = "Earlier scores, replaced by a newer run of the same seeds:"
    return [head, "", *found, ""] if found else []


def _peers() -> list[str]:
    """What a peer reaches over seeds where its published figure is of one run (peer.py)."""
    from sterling.references.return_bounds import return_bounds
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
            f"{len(scores)} seeds, evaluated in the same way "
            f"(`benchmarks/scores/peer.py`): {made}; each seed's "
            f"{', '.join(f'{score:.1f}' for score in scores)}.",
            "",
            *evidence.lines(file),
        ]
    return lines


def _wanted(task: dict[str, Any], arguments: argparse.Namespace) -> bool:
    if arguments.only:
        return name(task) in arguments.only
    return arguments.slow or not task.get("slow", False)


if __name__ == "__main__":
    main()
