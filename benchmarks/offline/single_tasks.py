"""IQL, ReBRAC and FQL on regenerated OGBench logs, beside the published success rates.

    python benchmarks/offline/single_tasks.py [--data FOLDER] [--only RUN ...] [--page]

A RUN is a learner and a log, such as iql-cube-single-play; with -long behind it one seed learns
longer and is measured on the way. Logs are made by `sterling data make`
where they are not there yet; runs are resumable, in runs/ogbench/. Results go to
benchmarks/offline/results/ogbench/, and the page benchmarks/results/ogbench.md is made anew from
all of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RESULTS, RUNS = HERE / "results" / "ogbench", ROOT / "runs" / "ogbench"
PAGE = ROOT / "benchmarks" / "results" / "ogbench.md"
LONG = "-long"
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
            for name, seeds, budgets in plans(algorithm, log):
                if not chosen.only or name in chosen.only:
                    measure(name, made(chosen.data, log), seeds, budgets)
    PAGE.write_text("\n".join(page()) + "\n")


def made(folder: Path, log: str) -> Path:
    """The log's folder; made by the command line where it is not there."""
    path = folder / f"{log}-singletask"
    if not path.exists():
        words = ["data", "make", f"{log}-singletask-v0", "--quality", "scripted", "--seed", "0"]
        words += ["--size", str(TASKS["size"]), "--workers", "2", "--out", str(path)]
        subprocess.run([sys.executable, "-m", "sterling", *words], check=True)
    return path


def plans(algorithm: str, log: str) -> Iterator[tuple[str, int, list[int]]]:
    """The runs of a learner on a log: name, seeds, and the updates after which it is measured."""
    name = f"{algorithm}-{log}"
    yield name, TASKS["seeds"], [TASKS["updates"]]
    if name in TASKS["long"]:
        yield f"{name}{LONG}", 1, TASKS["long"][name]


def measure(name: str, data: Path, seeds: int, budgets: list[int]) -> None:
    """Train to each of the budgets, and keep what is seen there; goes on where it stopped."""
    seen: list[dict[str, Any]] = []
    if len(budgets) > 1 and (RUNS / name).exists() and (RESULTS / f"{name}.json").exists():
        last = json.loads((RESULTS / f"{name}.json").read_text())
        parts = "updates", "success", "wall_seconds"
        seen = [*last["on_the_way"], {part: last[part] for part in parts}]
    for updates in budgets[len(seen) :]:
        seen.append(learn(name, data, seeds, updates))
        keep(name, data, seen)


def learn(name: str, data: Path, seeds: int, updates: int) -> dict[str, Any]:
    """Train (or go on training) to so many updates; the success then, and what it took."""
    import sterling
    from sterling.report.live.live_progress import Progress
    from sterling.statistics import estimate

    evidence.begin()  # refuses a changed tree before hours are spent
    path = RUNS / name
    sinks = [Progress(updates, seeds, name)]
    if (path / "config.json").exists():
        begun = json.loads((path / "config.json").read_text())["updates"]
        run = sterling.resume(path, updates=updates if updates > begun else None, sinks=sinks)
    else:
        algorithm, log = name.removesuffix(LONG).split("-", 1)
        own = TASKS["nets"] | TASKS["algorithms"][algorithm] | TASKS["data"][log].get(algorithm, {})
        budget = {"updates": updates, "evaluate_every": updates // 3, "evaluate_episodes": 10}
        where = {"data": data, "seeds": seeds, "out": path, "preset": False}
        run = sterling.train(algorithm, **where, **budget, **own, sinks=sinks)
    rates = solved(run, TASKS["episodes"])
    made = {"per_seed": rates}
    if seeds > 1:
        made |= estimate(rates, within=(0.0, 1.0)).to_json()
    print(name, updates, made)
    return {"updates": updates, "success": made, "wall_seconds": run.result["wall_seconds"]}


def keep(name: str, data: Path, seen: list[dict[str, Any]]) -> None:
    """Write a run's evidence: how it stands, and stood on the way there."""
    import sterling

    config = json.loads((RUNS / name / "config.json").read_text())
    begun = evidence.of_run(config, f"python benchmarks/offline/single_tasks.py --only {name}")
    facts = {"rows": sterling.Dataset(data).rows, "hash": config["data"]["hash"]}
    content = {"log": facts, **seen[-1], "on_the_way": seen[:-1], "config": config["config"]}
    evidence.write(RESULTS / f"{name}.json", content, begun, config["seeds"])


def solved(run: Any, episodes: int) -> list[float]:
    """Each seed's share of ``episodes`` that end before the time is over: the task is done."""
    import gymnasium

    from sterling.training.evaluation.evaluator import Evaluator

    judge = Evaluator(run.settings, episodes)
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
    lines += [*_authors(), *_longer(), "", "## Where each number comes from", ""]
    for file in sorted(RESULTS.rglob("*.json")):
        said = " ".join(line.strip("*") for line in evidence.lines(file) if line)
        lines.append(f"* {file.relative_to(RESULTS).with_suffix('')}: {said}")
    return lines


def _authors() -> list[str]:
    """What the authors' own code reaches."""
    paths = sorted((RESULTS / "authors").glob("*.json"))
    lines = ["", "FQL's authors' own code (benchmarks/offline/authors.py) with these settings:", ""]
    for path in paths:
        found = json.loads(path.read_text())
        ours = json.loads((RESULTS / path.name).read_text())
        same = "on the same log" if found["hash"] == ours["log"]["hash"] else "on another log"
        each = ", ".join(f"{share:.0%}" for share in found["success"].values())
        mine = f"ours above is of commit {ours['provenance'][0]['commit'][:7]}"
        lines.append(
            f"* {path.stem}, commit {found['commit'][:7]}, {same}, seed by seed: {each}; {mine}"
        )
    return lines if paths else []


def _longer() -> list[str]:
    """What one seed reaches with more updates."""
    paths = sorted(RESULTS.glob(f"*{LONG}.json"))
    lines = ["", "The same with one seed and more updates (thousands: share):", ""]
    for path in paths:
        found = json.loads(path.read_text())
        stood = [*found["on_the_way"], found]
        shares = (f"{x['updates'] // 1000}: {x['success']['per_seed'][0]:.0%}" for x in stood)
        lines.append(f"* {path.stem.removesuffix(LONG)}: {', '.join(shares)}")
    return lines if paths else []


def _cell(name: str, log: str) -> str:
    path = RESULTS / f"{name}-{log}.json"
    if not path.exists():
        return "-"
    made, known = json.loads(path.read_text())["success"], TASKS["data"][log]["published"]
    beside = f" ({known[name]})" if name in known else ""
    return f"{made['value']:.0%} [{made['low']:.0%}, {made['high']:.0%}]{beside}"


if __name__ == "__main__":
    main()
