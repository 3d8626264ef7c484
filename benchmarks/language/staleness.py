"""What waiting costs: answers learned from 0 to 8 iterations late, with and without a correction.

    python benchmarks/language/staleness.py

"naive" takes ratios to the policy that spoke, long gone; "decoupled" to the policy as the iteration
began, and weights each token by how likely that one would have said it (Hilton 2022; AReaL reports
that the naive way falls apart at a lag of 4, the decoupled one not). The same short SFT for all,
three seeds. Writes benchmarks/language/results/staleness.{json,md}.
"""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RUNS, OUT = ROOT / "runs" / "staleness", Path(__file__).parent / "results" / "staleness"
WORLD, SEEDS, SFT, UPDATES, LAGS = "reverse-text", 3, 230, 60, (0, 1, 2, 4, 8)
PACES, WAYS = (1, 4), ("naive", "decoupled")
SHARED: dict[str, Any] = {"limit": 8, "evaluate_episodes": 128, "seeds": SEEDS}
STEPS = {"prompts": 16, "group": 16, "lr": 5e-4, "aggregate": "token"}


def main() -> None:
    """Run every lag both ways, write the table."""
    import sterling

    begun = RUNS / "sft"
    if not (begun / "result.json").exists():
        shutil.rmtree(begun, ignore_errors=True)
        sterling.train("sft", WORLD, updates=SFT, out=begun, model="nano", **SHARED)
    path = OUT.with_suffix(".json")
    path.parent.mkdir(exist_ok=True)
    found = json.loads(path.read_text()) if path.exists() else {}
    found["start"] = json.loads((begun / "result.json").read_text())["final"]["return"]
    for pace, lag, way in itertools.product(PACES, LAGS, WAYS):
        name = named(pace, lag, way)
        if name in found:
            continue
        words = SHARED | STEPS | {"lag": lag, "decoupled": way == "decoupled", "minibatches": pace}
        updates = pace * (UPDATES + lag)  # of the first lag iterations nothing is learned
        run = sterling.train("grpo", WORLD, updates=updates, model=str(begun), **words)
        found[name] = run.result["final"]["return"]
        path.write_text(json.dumps(found, indent=1) + "\n")
    OUT.with_suffix(".md").write_text("\n".join(page(found)) + "\n")
    print("\n".join(page(found)))


def page(found: dict[str, Any]) -> list[str]:
    """Lag by lag."""
    lines = ["# Learning from answers that waited", ""]
    lines += [f"{WORLD}, {UPDATES} iterations after an SFT that reached {told(found['start'])};"]
    lines += [f"success of samples, {SEEDS} seeds, [95 %]; each seed's number below.", ""]
    pairs = list(itertools.product(PACES, WAYS))
    heads = [f"{way}, {pace} updates an iteration" for pace, way in pairs]
    lines += [f"| lag | {' | '.join(heads)} |", "|---" * (1 + len(pairs)) + "|"]
    for write in (told, lambda cell: " / ".join(f"{x:.2f}" for x in cell["per_seed"])):
        for lag in LAGS:
            cells = [write(found[named(pace, lag, way)]) for pace, way in pairs]
            lines += [f"| {lag} | {' | '.join(cells)} |"]
    return lines


def named(pace: int, lag: int, way: str) -> str:
    """What a cell is called."""
    return f"{way} {lag}" + (f" x{pace}" if pace > 1 else "")


def told(found: dict[str, Any]) -> str:
    """A number with its interval."""
    return f"{found['estimate']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"


if __name__ == "__main__":
    main()
