"""Train the same seeds under other processors' instructions and compile settings: what is equal?

    python benchmarks/reproducible/run.py [--only td3 ppo] [--page]

Each condition is a fresh process with an empty compilation cache. XLA compiles for what the
processor offers; ``--xla_cpu_max_isa`` makes it compile as it would on an older one, which is as
near to another machine as one machine comes. Compared with the first training are the returns of
every row of metrics, the final agent bit for bit, and the final evaluation's scores. Writes
benchmarks/results/reproducible.{json,md}.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "benchmarks" / "results" / "reproducible"
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

SEEDS = [0, 1]
TASKS: dict[str, dict[str, Any]] = {
    "td3 Pendulum-v1": {"algorithm": "td3", "environment": "Pendulum-v1", "steps": 5_000},
    "ppo CartPole-v1": {"algorithm": "ppo", "environment": "CartPole-v1", "steps": 20_000},
}
MAP: dict[str, Any] = {"strategy": "map"}
CONDITIONS: dict[str, tuple[str, dict[str, Any]]] = {  # name: XLA_FLAGS, options
    "first training (map)": ("", MAP),
    "again": ("", MAP),
    "seed 0 alone": ("", MAP | {"seeds": [0]}),
    "on one core": ("", MAP | {"cores": 1}),
    "strategy vmap": ("", {"strategy": "vmap"}),
    "strategy processes": ("", {"strategy": "processes"}),
    "LLVM's level 3": ("--xla_backend_optimization_level=3", MAP),
    "instructions up to AVX2": ("--xla_cpu_max_isa=AVX2", MAP),
    "instructions up to SSE4.2": ("--xla_cpu_max_isa=SSE4_2", MAP),
}


def main() -> None:
    """Train under every condition, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=["td3", "ppo"], help="algorithms")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.train:
        print("answer", json.dumps(trained(*chosen.train)))
        return
    path = OUT.with_suffix(".json")
    for task in () if chosen.page else TASKS:
        if TASKS[task]["algorithm"] in chosen.only:
            begun = evidence.begin()
            found = {name: under(task, name) for name in CONDITIONS}
            evidence.write_part(path, task, found, begun, SEEDS)
    OUT.with_suffix(".md").write_text("\n".join(page()).rstrip() + "\n")
    print(OUT.with_suffix(".md").read_text())


def under(task: str, name: str) -> dict[str, Any]:
    """What a training under a condition came to."""
    flags, options = CONDITIONS[name]
    with tempfile.TemporaryDirectory(prefix="sterling-reproducible-") as scratch:
        cache = {"JAX_COMPILATION_CACHE_DIR": scratch, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
        words = [sys.executable, __file__, "--train", task, json.dumps(options)]
        run = subprocess.run(
            words, env=os.environ | cache, stdout=subprocess.PIPE, text=True, check=True
        )
    answer: dict[str, Any] = json.loads(run.stdout.splitlines()[-1].removeprefix("answer "))
    print(task, name, answer["scores"], flush=True)
    return answer


def trained(task: str, words: str) -> dict[str, Any]:
    """Train once: returns of every row by seed, a digest of each seed's agent, final scores."""
    options = {"seeds": SEEDS, **json.loads(words)}
    if cores := options.pop("cores", None):
        os.sched_setaffinity(0, set(range(cores)))
    import jax
    import numpy as np

    import sterling

    rows = Rows()
    run = sterling.train(**TASKS[task], **options, sinks=[rows])
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(run.agent) if hasattr(leaf, "shape")]
    digests = []
    for place in range(len(options["seeds"])):
        digest = hashlib.sha256()
        for leaf in leaves:
            digest.update(np.ascontiguousarray(leaf[place]).tobytes())
        digests.append(digest.hexdigest()[:16])
    return {
        "step": rows.steps,
        "return": [list(seed) for seed in zip(*rows.returns, strict=True)],
        "agent": digests,
        "scores": run.result["final"]["return"]["per_seed"],
    }


class Rows:
    """A sink that keeps each row's step and returns."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.returns: list[list[float | None]] = []

    def write(self, row: dict[str, Any]) -> None:
        """Keep step and returns."""
        self.steps.append(row["step"])
        self.returns.append(row["data/return"])

    def close(self) -> None:
        """Nothing to close."""


def page() -> list[str]:
    """A table for each task."""
    content = json.loads(OUT.with_suffix(".json").read_text())
    lines = ["# What is equal when a seed is trained again", ""]
    lines += [
        "`python benchmarks/reproducible/run.py`; each training in a fresh process with an empty",
        "compilation cache. *Same agent*: all parameters, optimiser moments and normalisers of a",
        "seed are equal bit for bit. *Parts at*: the first row of metrics in which the returns of",
        "a seed differ, as environment steps.",
        "",
        *evidence.lines(OUT.with_suffix(".json")),
    ]
    for task, found in content["parts"].items():
        first = next(iter(found.values()))
        lines += [f"## {task}", "", "| training | same agent | parts at | final scores |"]
        lines += ["|---|---|---|---|"]
        for name, each in found.items():
            scores = ", ".join(f"{score:.2f}" for score in each["scores"])
            same, parts = compared(first, each) if each is not first else ("", "")
            lines.append(f"| {name} | {same} | {parts} | {scores} |")
        lines.append("")
    return [*lines, *earlier()]


def earlier() -> list[str]:
    """Committed scores trained again at the commits that they name, and today's."""
    path = OUT.with_name("earlier.json")
    if not path.exists():
        return []
    content = json.loads(path.read_text())
    lines = ["## Scores of earlier commits, trained again at those commits", ""]
    lines += ["`python benchmarks/reproducible/earlier.py`; days later, by processors of one kind."]
    lines += ["", *evidence.lines(path)]
    lines += ["| task | commit | in the file | trained again here | today's score file |"]
    lines += ["|---|---|---|---|---|"]
    for name, each in content["parts"].items():
        file = ROOT / "benchmarks" / "scores" / "results" / f"{name}.json"
        today = json.loads(file.read_text())["result"]["final"]["return"]["per_seed"]
        cells = (
            ", ".join(f"{x:.2f}" for x in row) for row in (each["written"], each["here"], today)
        )
        same = "equal to the last digit" if each["written"] == each["here"] else "not equal"
        first, second, third = cells
        lines.append(f"| {name} | {each['at'][:10]} | {first} | {second} ({same}) | {third} |")
    return lines


def compared(first: dict[str, Any], other: dict[str, Any]) -> tuple[str, str]:
    """How many seeds' agents are the same, and the earliest step at which a curve differs."""
    count = len(other["agent"])
    same = sum(a == b for a, b in zip(first["agent"], other["agent"], strict=False))
    parts = [
        step
        for one, another in zip(first["return"], other["return"], strict=False)
        for step, a, b in zip(first["step"], one, another, strict=True)
        if a != b
    ]
    return f"{same} of {count}", f"{min(parts):,}" if parts else "never"


if __name__ == "__main__":
    main()
