"""Does tuning find settings that beat the defaults on fresh seeds, and what does it cost?

    python benchmarks/tuning/run.py [--page] [--out benchmarks/results/tuning.json]

Three parts, each in a fresh process with an empty compilation cache:

    random    a study by random search
    singly    the very same configurations and seeds by one ``sterling.train`` call after another
    asha      a study of as many configurations by ASHA (eta 2, from a quarter of the steps)

``random`` and ``singly`` must come to the same scores bit for bit: a member of a study is the same
training. Their search times are what is compared; testing on fresh seeds is not counted. Seconds
on the clock depend on what else the machine does, which is measured; processor seconds do not.
Writes the JSON and, beside it, a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

TASK = {"algorithm": "ppo", "environment": "Acrobot-v1", "steps": 32_768}
TRIALS, SEEDS, TEST_SEEDS = 16, 5, 10
RUNGS = {"eta": 2, "least": 8_192}  # below, there is nothing to judge PPO by


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/tuning.json")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--part", choices=("random", "singly", "asha"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.part:
        _part(chosen.part, chosen.trials, chosen.out)
        return
    if not chosen.page:
        begun = evidence.begin()
        seeds = f"{SEEDS} to tune, {TEST_SEEDS} fresh to test"
        evidence.write(chosen.out, _measured(chosen.trials), begun, seeds)
    text = table(json.loads(chosen.out.read_text()), chosen.out)
    chosen.out.with_suffix(".md").write_text(text)
    print(text)


def _measured(trials: int) -> dict[str, Any]:
    """All three parts, one after another."""
    task = {**TASK, "trials": trials, "seeds": SEEDS, "test_seeds": TEST_SEEDS}
    results: dict[str, Any] = {"task": task, "searches": {}}
    with tempfile.TemporaryDirectory(prefix="sterling-tuning-") as scratch:
        for part in ("random", "singly", "asha"):
            folder = Path(scratch) / part
            results["searches"][part] = _measure(part, trials, folder)
            print(part, results["searches"][part]["measured"], flush=True)
    parts = results["searches"]
    results["identical"] = parts["random"]["scores"] == parts["singly"]["scores"]
    return results


def _measure(part: str, trials: int, folder: Path) -> dict[str, Any]:
    """One part in a process of its own: what it came to, and what it and others used."""
    folder.mkdir()
    out, cache = folder / "answer.json", folder / "cache"
    busy, spent, start = _busy(), _spent(), time.monotonic()
    subprocess.run(
        [sys.executable, __file__, "--part", part, "--trials", str(trials), "--out", str(out)],
        env={**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    elapsed, own = time.monotonic() - start, _spent() - spent
    answer = json.loads(out.read_text())
    elsewhere = max(_busy() - busy - own, 0.0) / elapsed
    answer["measured"] = {
        "process_seconds": round(elapsed, 1),
        "cores_busy_elsewhere": round(elsewhere, 2),
        "search_seconds": round(answer.pop("search_seconds"), 1),
        "search_processor_seconds": round(answer.pop("search_processor_seconds"), 1),
    }
    return answer


def _part(part: str, trials: int, out: Path) -> None:
    begun = time.monotonic() - _age()  # imports count
    answer = _singly(trials, begun) if part == "singly" else _study(part, trials, out, begun)
    out.write_text(json.dumps(answer))


def _study(search: str, trials: int, out: Path, begun: float) -> dict[str, Any]:
    """A study; its search ends when testing begins."""
    from sterling.tuning import tune

    ended: list[tuple[float, float]] = []

    def watch(stage: str, wave: Any, line: Any) -> None:
        if stage == "test" and not ended:
            ended.append((time.monotonic() - begun, _tree_seconds()))

    folder = out.parent / "study"
    tuned = tune(
        **TASK, trials=trials, seeds=SEEDS, test_seeds=TEST_SEEDS, search=search,
        preset=False, out=folder, watch=watch, **(RUNGS if search == "asha" else {}),
    )  # fmt: skip
    lines = [json.loads(text) for text in (folder / "trials.jsonl").open()]
    lines.sort(key=lambda line: line["id"])
    return {
        "report": tuned.report,
        "scores": [line["scores"] for line in lines],
        "search_seconds": ended[0][0],
        "search_processor_seconds": ended[0][1],
    }


def _singly(trials: int, begun: float) -> dict[str, Any]:
    """The configurations of the random study, one ``sterling.train`` after another."""
    import sterling
    from sterling.tuning import search_space, trial_objective
    from sterling.tuning.searchers.searchers import RandomSearch

    searcher = RandomSearch(search_space.read_space(TASK["algorithm"]), 0, trials, TASK["steps"])
    scores = []
    while (job := searcher.ask()) is not None:
        rows: list[list[float | None]] = []
        sink = _Returns(rows)
        sterling.train(
            **TASK, seeds=SEEDS, preset=False, evaluate_episodes=0, sinks=[sink], **job.fields
        )
        returns = [list(seed) for seed in zip(*rows, strict=True)]
        scores.append(
            [trial_objective.score_seed("last", own, len(rows), False) for own in returns]
        )
    seconds = time.monotonic() - begun
    return {
        "scores": scores,
        "search_seconds": seconds,
        "search_processor_seconds": _tree_seconds(),
    }


class _Returns:
    """A sink of returns."""

    def __init__(self, rows: list[list[float | None]]):
        self._rows = rows

    def write(self, row: dict[str, Any]) -> None:
        """Keep the returns."""
        self._rows.append(row["data/return"])

    def close(self) -> None:
        """Nothing to close."""


def _tree_seconds() -> float:
    """Processor seconds of this process and its children, also while they run."""
    ticks, tree, found = os.sysconf("SC_CLK_TCK"), {os.getpid()}, 0
    for entry in sorted((p for p in Path("/proc").iterdir() if p.name.isdigit()), key=_number):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(entry.name) in tree or int(fields[1]) in tree:
            tree.add(int(entry.name))
            found += int(fields[11]) + int(fields[12])
    return found / ticks


def _number(path: Path) -> int:
    return int(path.name)


def _age() -> float:
    """Seconds since this process began."""
    started = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    up = float(Path("/proc/uptime").read_text().split()[0])
    return up - started / os.sysconf("SC_CLK_TCK")


def _busy() -> float:
    """Seconds that all cores together have worked since the machine began."""
    user, nice, system = Path("/proc/stat").read_text().split()[1:4]
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")


def spanned(found: dict[str, Any], apart: bool = False) -> str:
    """Return an estimate from each seed's score, with the interval that is usual now, within what
    returns of the environment cannot leave; ``apart``: of differences."""
    from sterling.references.return_bounds import return_bounds
    from sterling.statistics import estimate

    low, high = return_bounds(TASK["environment"])
    return str(
        estimate(found["per_seed"], within=(low - high, high - low) if apart else (low, high))
    )


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(results: dict[str, Any], path: Path) -> str:
    """The results for people."""
    task, parts = results["task"], results["searches"]
    singly = parts["singly"]["measured"]
    lines = [
        f"# Tuning {task['algorithm']} on {task['environment']}",
        "",
        *evidence.lines(path),
        f"{task['trials']} configurations x {task['seeds']} tuning seeds, {task['steps']:,} steps, "
        f"default search space, no preset. Score: interquartile mean of the last tenth of the "
        f"returns of learning; 95 % intervals over {task['test_seeds']} fresh seeds. "
        "How: benchmarks/tuning/run.py.",
        "",
        "| search | incumbent, tuning seeds | incumbent, fresh seeds | defaults, fresh seeds "
        "| difference, seed by seed |",
        "| --- | --- | --- | --- | --- |",
    ]
    for part in ("random", "asha"):
        made = parts[part]["report"]
        best, usual = made["incumbent"], made["defaults"]
        lines.append(
            f"| {part} | {best['tuning']['score']:.1f} | {spanned(best['test'])} "
            f"| {spanned(usual['test'])} | {spanned(made['difference'], apart=True)} |"
        )
    lines += [
        "",
        "| search of the configurations | steps | seconds on the clock | against one after another "
        "| processor seconds | cores busy elsewhere |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    names = {"singly": "one `sterling.train` after another", "random": "random", "asha": "ASHA"}
    for part, name in names.items():
        measured = parts[part]["measured"]
        report = parts[part].get("report", parts["random"]["report"])
        ratio = singly["search_seconds"] / measured["search_seconds"]
        faster = "" if part == "singly" else f"{ratio:.1f} x faster"
        lines.append(
            f"| {name} | {report['budget']['steps']:,} | {measured['search_seconds']} "
            f"| {faster} | {measured['search_processor_seconds']} "
            f"| {measured['cores_busy_elsewhere']} |"
        )
    same = "the same bit for bit" if results["identical"] else "**not the same**"
    lines += ["", f"Scores of random search and of one after another: {same}.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
