"""From a log to the world on a sparse task: offline alone, online alone, and the ways between.

    python benchmarks/bridge/run.py [--data FOLDER]

MountainCar-v0 pays -1 a step until the flag, which chance never finds. The log is what DQN lived
through until it found it now and then (`sterling data make`); every contender then has the same
steps in the world. Writes benchmarks/results/bridge.{json,md}; runs are resumable in runs/bridge/.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from sterling.statistics import improve
from sterling.training.choices import Guidance

ROOT = Path(__file__).parents[2]
RUNS, OUT = ROOT / "runs" / "bridge", ROOT / "benchmarks" / "results" / "bridge"
WORLD, SEEDS, UPDATES, STEPS = "MountainCar-v0", 5, 20_000, 10_000
MAKE = "--quality medium-replay --agent dqn --steps 120000 --size 60000 --seed 1"
SMALL = {"width": 64, "lr": 1e-3, "batch": 128, "normalise_obs": True}
IQL = SMALL | {"beta": 3.0, "expectile": 0.8}
ALPHA = {"alpha": 0.05, "tune_alpha": False, "depth": 2}
SOFT = SMALL | ALPHA | {"diversity": None, "members": 2, "layer_norm": True}
CALIBRATED = SMALL | ALPHA | {"actor_lr": 1e-3, "calibrated": True, "penalty": 1.0}
ONLINE = {"steps": STEPS, "warmup": 1_000, "learn": 4}
LOG = {"updates": UPDATES}
LESS = {"online": {"penalty": 0.2}}  # a fifth from the first step on, as examples/bridge/cal_ql.py
EXPANSION = {"guide": ("IQL offline", "expansion", 0)}
BY_IQL, BY_SAC = ({"guide": (f"{one} offline", "jump-start", 200)} for one in ("IQL", "SAC-N"))
CONTENDERS: dict[str, tuple[str, bool, dict[str, Any]]] = {  # name: algorithm, log, words
    "SAC-N online": ("edac", False, SOFT | ONLINE),
    "IQL offline": ("iql", True, IQL | LOG),
    "SAC-N offline": ("edac", True, SOFT | LOG),
    "RLPD": ("edac", True, SOFT | ONLINE | {"share": 0.5}),
    "IQL, then online": ("iql", True, IQL | LOG | ONLINE | {"share": 0.5}),
    "SAC-N, then online": ("edac", True, SOFT | LOG | ONLINE | {"share": 0.5}),
    "WSRL": ("edac", True, SOFT | LOG | ONLINE | {"share": 0.0}),
    "Cal-QL": ("cql", True, CALIBRATED | LOG | ONLINE | LESS | {"share": 0.5}),
    "AWAC, then online": ("awac", True, SMALL | LOG | ONLINE | {"share": 0.5}),
    "JSRL, guided by IQL": ("edac", False, SOFT | ONLINE | BY_IQL),
    "JSRL, guided by SAC-N": ("edac", False, SOFT | ONLINE | BY_SAC),
    "PEX": ("iql", True, IQL | LOG | ONLINE | {"share": 0.5} | EXPANSION),
}
ALONE = ("SAC-N online", "IQL offline", "SAC-N offline")


def main() -> None:
    """Run every contender, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT / "runs" / "data" / WORLD)
    data = parser.parse_args().data
    if not data.exists():
        words = ["data", "make", WORLD, *MAKE.split(), "--out", str(data)]
        subprocess.run([sys.executable, "-m", "sterling", *words], check=True)
    results = {name: train(name, data) for name in CONTENDERS}
    for found in results.values():
        if "data" in found:
            found["data"]["path"] = data.name  # wherever it lay on this machine
    OUT.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    OUT.with_suffix(".md").write_text("\n".join(page(results, data)) + "\n")
    print("\n".join(page(results, data)))


def train(name: str, data: Path) -> dict[str, Any]:
    """One contender's result."""
    import sterling

    algorithm, logged, words = CONTENDERS[name]
    path = folder(name)
    if (path / "config.json").exists():
        return sterling.resume(path).result
    log = {"data": data} if logged else {}
    if "guide" in words:
        guide, way, steps = words["guide"]
        words = words | {"guide": Guidance(str(folder(guide)), way, steps)}
    options = {"seeds": SEEDS, "out": path, "envs": 1, "preset": False, **log}
    return sterling.train(algorithm, WORLD, **options, **words).result


def folder(name: str) -> Path:
    """Of a contender's run."""
    return RUNS / name.replace(",", "").replace(" ", "-").lower()


def page(results: dict[str, Any], data: Path) -> list[str]:
    """What was found, as Markdown."""
    import sterling

    log = sterling.Dataset(data)
    lines = [
        "# From a log to the world",
        "",
        f"`python benchmarks/bridge/run.py`: {WORLD}, {SEEDS} seeds, last policy, deterministic, "
        f"20 episodes per seed. The log: {log.episodes} episodes, {log.rows:,} steps, mean return "
        f"{log.returns.mean():.0f}, {log.ended.mean():.0%} find the flag. {UPDATES:,} updates "
        f"from the log, {STEPS:,} steps in the world, four updates each (JSRL learns without the "
        "log; WSRL goes on from SAC-N, without it). Means, 95% intervals over seeds; the dip is "
        "from the return before the first step to the lowest of ten evaluations afterwards.",
        "",
        "| | return | per seed | before the first step | dip |",
        "|---|---|---|---|---|",
    ]
    for name, found in results.items():
        final, switch = found["final"]["return"], found.get("switch")
        seeds = " ".join(f"{x:.0f}" for x in final["per_seed"])
        parts = [_cell(switch["before"]), _cell(switch["dip"])] if switch else ["", ""]
        lines.append(f"| {name} | {_cell(final)} | {seeds} | " + " | ".join(parts) + " |")
    lines += ["", "P(a run of the first is better than one of the second):", ""]
    for bridge in (name for name in CONTENDERS if name not in ALONE):
        for alone in ALONE:
            scores = [results[each]["final"]["return"]["per_seed"] for each in (bridge, alone)]
            lines.append(f"* {bridge} over {alone}: {improve(*scores)}")
        if switch := results[bridge].get("switch"):
            scores = [results[bridge]["final"]["return"], switch["before"]]
            better = improve(*(each["per_seed"] for each in scores))
            lines.append(f"* {bridge} over itself before the first step: {better}")
    return lines


def _cell(made: dict[str, Any]) -> str:
    return f"{made['estimate']:.0f} [{made['low']:.0f}, {made['high']:.0f}]"


if __name__ == "__main__":
    main()
