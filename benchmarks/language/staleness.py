"""What waiting costs: answers learned from 0 to 8 iterations late, with and without a correction.

    python benchmarks/language/staleness.py [--page]

"naive" takes ratios to the policy that spoke, long gone; "decoupled" to the policy as the iteration
began, and weights each token by how likely that one would have said it (Hilton 2022; AReaL reports
that the naive way falls apart at a lag of 4, the decoupled one not). Four updates an iteration, a
step size that suits and one that is too large; the same short SFT for all, three seeds. Writes
benchmarks/language/results/staleness.{json,md}.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RUNS, OUT = ROOT / "runs" / "staleness", Path(__file__).parent / "results" / "staleness"
WORLD, SEEDS, SFT, ITERATIONS, LAGS = "arithmetic", 3, 150, 150, (0, 1, 2, 4, 8)
RATES, WAYS = (3e-4, 1e-3), ("naive", "decoupled")
SHARED: dict[str, Any] = {"limit": 6, "evaluate_episodes": 256, "seeds": SEEDS}
STEPS = {"prompts": 16, "group": 16, "minibatches": 4}


def main() -> None:
    """Run every lag both ways, write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    if not parser.parse_args().page:
        measure()
    content = json.loads(OUT.with_suffix(".json").read_text())
    OUT.with_suffix(".md").write_text("\n".join(page(content["parts"])) + "\n")
    print(OUT.with_suffix(".md").read_text())


def measure() -> None:
    """Train every cell that is not there yet, from one SFT for all."""
    import sterling

    begun, path, sft = evidence.begin(), OUT.with_suffix(".json"), RUNS / "sft"
    if not (sft / "result.json").exists():
        shutil.rmtree(sft, ignore_errors=True)
        sterling.train("sft", WORLD, updates=SFT, out=sft, model="nano", **SHARED)
    start, seeds = json.loads((sft / "result.json").read_text()), list(range(SEEDS))
    found = evidence.write_part(path, "start", start["final"]["return"], begun, seeds)
    for lr, lag, way in itertools.product(RATES, LAGS, WAYS):
        name = named(lr, lag, way)
        if name in found["parts"]:
            continue
        words = SHARED | STEPS | {"lag": lag, "decoupled": way == "decoupled", "lr": lr}
        updates = STEPS["minibatches"] * (ITERATIONS + lag)  # the first lag of them learn nothing
        words["evaluate_every"] = updates
        run = sterling.train("grpo", WORLD, updates=updates, model=str(sft), **words)
        evidence.write_part(path, name, run.result["final"]["return"], begun, seeds)


def page(found: dict[str, Any]) -> list[str]:
    """Lag by lag."""
    lines = ["# Learning from answers that waited", ""]
    lines += [f"{WORLD}, {ITERATIONS} iterations of {STEPS['minibatches']} updates after an SFT"]
    lines += [f"that reached {told(found['start'])};"]
    lines += [
        f"success of samples, mean of {SEEDS} seeds (each seed's); then what the lag changed,"
    ]
    lines += ["seed by seed against the same way without lag, [95 %].", ""]
    lines += evidence.lines(OUT.with_suffix(".json"))
    pairs = list(itertools.product(RATES, WAYS))
    heads = [f"{way}, step size {lr:g}" for lr, way in pairs]
    rule = "|---" * (1 + len(pairs)) + "|"
    lines += [f"| lag | {' | '.join(heads)} |", rule]
    for lag in LAGS:
        cells = [found[named(lr, lag, way)] for lr, way in pairs]
        lines += [f"| {lag} | {' | '.join(map(each, cells))} |"]
    lines += ["", f"| lag | {' | '.join(heads)} |", rule]
    for lag in LAGS[1:]:
        cells = [changed(found, lr, lag, way) for lr, way in pairs]
        lines += [f"| {lag} | {' | '.join(cells)} |"]
    return lines


def changed(found: dict[str, Any], lr: float, lag: int, way: str) -> str:
    """What waiting so long cost each seed, and its interval."""
    from sterling.statistics import estimate

    late, prompt = (found[named(lr, each, way)]["per_seed"] for each in (lag, 0))
    made = estimate([a - b for a, b in zip(late, prompt, strict=True)])
    return f"{made.value:+.3f} [{made.low:+.3f}, {made.high:+.3f}]"


def each(found: dict[str, Any]) -> str:
    """A mean, and every seed's number."""
    return f"{found['estimate']:.3f} ({' / '.join(f'{x:.2f}' for x in found['per_seed'])})"


def named(lr: float, lag: int, way: str) -> str:
    """What a cell is called."""
    return f"{way} {lag} at {lr:g}"


def told(found: dict[str, Any]) -> str:
    """A number with its interval."""
    return f"{found['estimate']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"


if __name__ == "__main__":
    main()
