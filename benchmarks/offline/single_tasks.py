"""IQL, ReBRAC and FQL on regenerated OGBench logs, beside the published success rates.

    python benchmarks/offline/single_tasks.py [--data FOLDER] [--only RUN ...] [--page]

A RUN is a learner and a log, such as iql-cube-single-play. Logs are made by `sterling data make`
where they are not there yet; runs are resumable, in runs/ogbench/. Results go to
benchmarks/offline/results/ogbench/, and the page benchmarks/results/ogbench.md is made anew from
all of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS, RUNS = HERE / "results" / "ogbench", ROOT / "runs" / "ogbench"
PAGE = ROOT / "benchmarks" / "results" / "ogbench.md"
TASKS = json.loads((HERE / "single_tasks.json").read_text())


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT / "runs" / "data", help="the logs")
    parser.add_argument("--only", nargs="*", help="runs, such as iql-cube-single-play")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    chosen = parser.parse_args()
    for log in TASKS["data"] if not chosen.page else ():
        for algorithm in TASKS["algorithms"]:
            if not chosen.only or f"{algorithm}-{log}" in chosen.only:
                learn(algorithm, log, made(chosen.data, log))
    PAGE.write_text("\n".join(page()) + "\n")


def made(folder: Path, log: str) -> Path:
    """The log's folder; made by the command line where it is not there."""
    path = folder / f"{log}-singletask"
    if not path.exists():
        words = ["data", "make", f"{log}-singletask-v0", "--quality", "scripted", "--seed", "0"]
        words += ["--size", str(TASKS["size"]), "--workers", "2", "--out", str(path)]
        subprocess.run([sys.executable, "-m", "sterling", *words], check=True)
    return path


def learn(algorithm: str, log: str, data: Path) -> None:
    """Train (or go on training) one learner on one log and keep its evidence."""
    import sterling
    from sterling.report.progress import Progress
    from sterling.statistics import estimate

    name = f"{algorithm}-{log}"
    path, updates, seeds = RUNS / name, TASKS["updates"], TASKS["seeds"]
    sinks = [Progress(updates, seeds, name)]
    if (path / "config.json").exists():
        run = sterling.resume(path, sinks=sinks)
    else:
        own = TASKS["nets"] | TASKS["algorithms"][algorithm] | TASKS["data"][log].get(algorithm, {})
        budget = {"updates": updates, "evaluate_every": updates // 3, "evaluate_episodes": 10}
        where = {"data": data, "seeds": seeds, "out": path, "preset": False}
        run = sterling.train(algorithm, **where, **budget, **own, sinks=sinks)
    rates = solved(run, TASKS["episodes"])
    config = json.loads((path / "config.json").read_text())
    kept = {key: config[key] for key in ("config", "versions", "hardware", "git", "time")}
    facts = {"rows": sterling.Dataset(data).rows, "hash": config["data"]["hash"]}
    success = {"per_seed": rates, **estimate(rates, within=(0.0, 1.0)).to_json()}
    evidence = {"log": facts, "success": success, "wall_seconds": run.result["wall_seconds"]}
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(evidence | kept, indent=1) + "\n")
    print(name, success)


def solved(run: Any, episodes: int) -> list[float]:
    """Each seed's share of ``episodes`` that end before the time is over: the task is done."""
    import gymnasium

    from sterling.training.judge import Judge

    judge = Judge(run.settings, episodes)
    try:
        lengths = judge(run.agent)["length"]
    finally:
        judge.close()
    limit = gymnasium.spec(run.settings.name.rpartition(":")[2]).max_episode_steps
    return [float(share) for share in (lengths < limit).mean(1)]


def page() -> list[str]:
    """What was found, as Markdown."""
    names = list(TASKS["algorithms"])
    lines = [
        "# OGBench's single tasks on regenerated logs",
        "",
        f"`python benchmarks/offline/single_tasks.py`: {TASKS['size']:,} rows of `sterling data "
        f"make LOG-singletask-v0 --quality scripted` (published: 1,000,000), {TASKS['updates']:,} "
        f"updates of batches of {TASKS['nets']['batch']} (published: 1,000,000), hidden layers of "
        f"{TASKS['nets']['width']} units (published: 512), {TASKS['seeds']} seeds, last policy, "
        f"{TASKS['episodes']} episodes per seed. Share of episodes in which the default task is "
        "done, with the mean's 95 % interval over seeds; in brackets what the FQL paper has "
        "(8 seeds; anchors 2.4).",
        "",
        "| log | " + " | ".join(names) + " |",
        "|" + "---|" * (1 + len(names)),
    ]
    for log in TASKS["data"]:
        cells = [_cell(name, log) for name in names]
        if any(cell != "-" for cell in cells):
            lines.append(f"| {log} | " + " | ".join(cells) + " |")
    return lines


def _cell(name: str, log: str) -> str:
    path = RESULTS / f"{name}-{log}.json"
    if not path.exists():
        return "-"
    made, known = json.loads(path.read_text())["success"], TASKS["data"][log]["published"]
    beside = f" ({known[name]})" if name in known else ""
    return f"{made['value']:.0%} [{made['low']:.0%}, {made['high']:.0%}]{beside}"


if __name__ == "__main__":
    main()
