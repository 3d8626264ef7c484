"""Which switch of the policy gradient matters? All combinations of four of them, with intervals.

    python benchmarks/language/ablation.py [--page]

Every cell begins with the same short SFT and makes the same updates on reverse-text; three seeds.
Writes benchmarks/language/results/ablation.{json,md}: the cells, and each switch's main effect (the
mean over the other switches and seeds, a difference of each seed from itself with its interval).
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RUNS, OUT = ROOT / "runs" / "ablation", Path(__file__).parent / "results" / "ablation"
WORLD, SEEDS, SFT, UPDATES = "reverse-text", 3, 230, 160
SHARED: dict[str, Any] = {"model": "nano", "limit": 8, "evaluate_episodes": 128}
SWITCHES: dict[str, tuple[Any, Any]] = {
    "scale": ("group", "none"),
    "level": ("token", "sequence"),
    "rule": ("clip", "cispo"),
    "aggregate": ("token", "sequence"),
}
STEPS = {"prompts": 16, "group": 16, "lr": 5e-4, "epochs": 2}  # two epochs: ratios leave 1


def main() -> None:
    """Run all cells, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    if not parser.parse_args().page:
        measure()
    content = json.loads(OUT.with_suffix(".json").read_text())
    OUT.with_suffix(".md").write_text("\n".join(page(content["parts"], content["start"])) + "\n")
    print(OUT.with_suffix(".md").read_text())


def measure() -> None:
    """Train every cell that is not there yet, from one SFT for all."""
    import sterling

    begun, path, sft = evidence.begin(), OUT.with_suffix(".json"), RUNS / "sft"
    if not (sft / "result.json").exists():
        shutil.rmtree(sft, ignore_errors=True)
        sterling.train("sft", WORLD, updates=SFT, seeds=SEEDS, out=sft, **SHARED)
    start = json.loads((sft / "result.json").read_text())["final"]["return"]
    evidence.note(path, "start", start)
    content = json.loads(path.read_text())
    for values in itertools.product(*SWITCHES.values()):
        name = ", ".join(values)
        if name not in content["parts"]:
            words = SHARED | STEPS | dict(zip(SWITCHES, values, strict=True))
            words |= {"model": str(sft), "low": 0.2, "high": 0.28}
            run = sterling.train("grpo", WORLD, updates=UPDATES, seeds=SEEDS, **words)
            made = run.result["final"]["return"]
            evidence.write_part(path, name, made, begun, list(range(SEEDS)))


def page(cells: dict[str, Any], start: dict[str, Any]) -> list[str]:
    """The main effects, and all cells."""
    lines = ["# The switches of the policy gradient, all combinations", ""]
    lines += [
        f"{WORLD}, {UPDATES} updates after an SFT that reached {told(start)}, {SEEDS} seeds.",
        "",
        *evidence.lines(OUT.with_suffix(".json")),
    ]
    lines += ["| switch | from | to | effect on success [95 %] |", "|---|---|---|---|"]
    for place, (switch, (one, other)) in enumerate(SWITCHES.items()):
        made = effect(cells, place, one, other)
        words = f"{made.value:+.3f} [{made.low:+.3f}, {made.high:+.3f}]"
        lines += [f"| {switch} | {one} | {other} | {words} |"]
    lines += ["", f"| {' | '.join(SWITCHES)} | success [95 %] |", "|---" * 5 + "|"]
    for name, found in cells.items():
        lines += [f"| {' | '.join(name.split(', '))} | {told(found)} |"]
    return lines


def effect(cells: dict[str, Any], place: int, one: Any, other: Any) -> Any:
    """Mean difference when a switch is moved, each seed against itself, with its interval."""
    from sterling.statistics import estimate

    table = {tuple(name.split(", ")): found["per_seed"] for name, found in cells.items()}
    pairs = []
    for key, scores in table.items():
        if key[place] == one:
            moved = (*key[:place], other, *key[place + 1 :])
            pairs.append(np.subtract(table[moved], scores))
    return estimate(np.mean(pairs, 0))


def told(found: dict[str, Any]) -> str:
    """A number with its interval."""
    return f"{found['estimate']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"


if __name__ == "__main__":
    main()
