"""From a log to the world on a sparse task: offline alone, online alone, and the ways between.

    python benchmarks/bridge/run.py [--data FOLDER] [--only NAME ...] [--page]

MountainCar-v0 pays -1 a step until the flag, which random actions never reach. The log is what the
replay of an online DQN held (10,000 rows at most) when it had come a third of the way
(`sterling data make`); that DQN had taken more steps by then. Contenders that use the log have seen
its steps and their own; those called "twice" have no log and as many steps in all. Writes
benchmarks/results/bridge.{json,md}; runs are resumable in runs/bridge/.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from sterling.references.return_bounds import return_bounds
from sterling.statistics import estimate, improve
from sterling.training.config.run_options import Guidance

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

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
TWICE = {"steps": 2 * STEPS}  # what those have seen in all that use the log
PRESET = {"preset": True, "envs": None}  # the settings of the DQN that made the log
LESS = {"online": {"penalty": 0.2}}  # a fifth from the first step on, as examples/bridge/cal_ql.py
EXPANSION = {"guide": ("IQL offline", "expansion", 0)}
BY_IQL, BY_SAC = ({"guide": (f"{one} offline", "jump-start", 200)} for one in ("IQL", "SAC-N"))
CONTENDERS: dict[str, tuple[str, bool, dict[str, Any]]] = {  # name: algorithm, log, words
    "SAC-N online": ("edac", False, SOFT | ONLINE),
    "SAC-N online, twice": ("edac", False, SOFT | ONLINE | TWICE),
    "DQN online": ("dqn", False, PRESET | {"steps": STEPS}),
    "DQN online, twice": ("dqn", False, PRESET | TWICE),
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
CHANGED = """Settings that were changed after results had been seen: at 761f24b (2026-11-22) every
contender but RLPD had one update a step and no layer norm in its critics, and the log was another
(SAC-N then online -119, WSRL -133, IQL then online and PEX -150, Cal-QL -158, AWAC -168, JSRL -200
and -196); since 2853786 (2026-11-23) all have four updates and soft critics layer norm. Cal-QL's
penalty falls at the switch since 094dd3e (2026-11-24; before, with the four updates, -133)."""
ALONE = tuple(name for name in CONTENDERS if "online" in name and "then" not in name)
ALONE += ("IQL offline", "SAC-N offline")


def main() -> None:
    """Run every contender that is asked for, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT / "runs" / "data" / WORLD)
    parser.add_argument("--only", nargs="*", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    chosen = parser.parse_args()
    path = OUT.with_suffix(".json")
    for name in () if chosen.page else chosen.only:
        begun = evidence.begin()
        found = train(name, chosen.data)
        config = json.loads((folder(name) / "config.json").read_text())
        begun = evidence.of_run(config, begun["command"])
        found["experience"] = experience(name, json.loads(path.read_text())["log"])
        evidence.write_part(path, name, found, begun, list(range(SEEDS)))
    OUT.with_suffix(".md").write_text("\n".join(page(json.loads(path.read_text()))) + "\n")
    print(OUT.with_suffix(".md").read_text())


def train(name: str, data: Path) -> dict[str, Any]:
    """One contender's result."""
    import sterling

    algorithm, logged, words = CONTENDERS[name]
    path = folder(name)
    if (path / "config.json").exists():
        return sterling.resume(path).result
    log = made(data) if logged else {}
    if "guide" in words:
        guide, way, steps = words["guide"]
        words = words | {"guide": Guidance(str(folder(guide)), way, steps)}
    options = {"seeds": SEEDS, "out": path, "envs": 1, "preset": False, **log} | words
    if options["envs"] is None:  # the preset's; None of any other option means none
        del options["envs"]
    found = sterling.train(algorithm, WORLD, **options).result
    if logged:
        found["data"]["path"] = data.name  # wherever it lay on this machine
    return found


def made(data: Path) -> dict[str, Path]:
    """The log, made by the command line where it is not there, and noted in the results."""
    import sterling

    if not data.exists():
        words = ["data", "make", WORLD, *MAKE.split(), "--out", str(data)]
        subprocess.run([sys.executable, "-m", "sterling", *words], check=True)
    log = sterling.Dataset(data)
    facts = {"episodes": log.episodes, "rows": log.rows, "hash": log.hash}
    facts |= {"made": [source.name for source in log.facts.sources]}
    facts |= {"mean": float(log.returns.mean()), "ended": float(log.ended.mean())}
    evidence.note(OUT.with_suffix(".json"), "log", facts)
    return {"data": data}


def folder(name: str) -> Path:
    """Of a contender's run."""
    return RUNS / name.replace(",", "").replace(" ", "-").lower()


def page(content: dict[str, Any]) -> list[str]:
    """What was found, as Markdown."""
    log, results = content["log"], content["parts"]
    results = {name: results[name] for name in CONTENDERS if name in results}
    lines = [
        "# From a log to the world",
        "",
        f"`python benchmarks/bridge/run.py`: {WORLD}, {SEEDS} seeds, last policy, deterministic, "
        f"20 episodes per seed. The log: what the replay of an online DQN still held, "
        f"{log['episodes']} episodes, "
        f"{log['rows']:,} steps, mean return {log['mean']:.0f}; {log['ended']:.0%} of them reach "
        f"the flag. {UPDATES:,} updates from the log, {STEPS:,} steps in the world, four updates "
        "each (JSRL learns without the log, guided by a policy that was trained on it; WSRL "
        "continues from SAC-N without the log). *Experience* counts the log's steps and the run's "
        "own. *Twice*: without the log, as many steps in all as the others have with it. The steps "
        f"that the log's DQN took before those rows are in no row of the table ({_origin(log)}). "
        "DQN has its preset, as the DQN that made the log. Means, 95 % intervals over "
        "seeds, computed from their scores by today's `sterling.statistics.estimate`; the dip is "
        "from the return before the first step to the lowest of ten evaluations afterwards.",
        "",
        *CHANGED.splitlines(),
        "",
        *evidence.lines(OUT.with_suffix(".json")),
        "| | experience | return | per seed | before the first step | dip |",
        "|---|---|---|---|---|---|",
    ]
    within = return_bounds(WORLD)
    for name, found in results.items():
        scores, switch = found["final"]["return"]["per_seed"], found.get("switch")
        seeds = " ".join(f"{x:.0f}" for x in scores)
        parts = (
            [cell(switch["before"]["per_seed"], within), cell(switch["dip"]["per_seed"])]
            if switch
            else ["", ""]
        )
        lines.append(
            f"| {name} | {found['experience']:,} | {cell(scores, within)} | {seeds} | "
            + " | ".join(parts)
            + " |"
        )
    return [*lines, "", *_improvements(results)]


def experience(name: str, log: dict[str, Any]) -> int:
    """Environment steps that a contender rests on: the log's and its own."""
    _, logged, words = CONTENDERS[name]
    own: int = words.get("steps", 0)
    return own + (log["rows"] if logged or "guide" in words else 0)


def _improvements(results: dict[str, Any]) -> list[str]:
    """Each way between beside each way alone."""
    lines = ["P(a run of the first is better than one of the second):", ""]
    for bridge in (name for name in results if name not in ALONE):
        for alone in (name for name in ALONE if name in results):
            scores = [results[each]["final"]["return"]["per_seed"] for each in (bridge, alone)]
            lines.append(f"* {bridge} over {alone}: {improve(*scores)}")
        if switch := results[bridge].get("switch"):
            scores = [results[bridge]["final"]["return"], switch["before"]]
            better = improve(*(each["per_seed"] for each in scores))
            lines.append(f"* {bridge} over itself before the first step: {better}")
    return lines


def _origin(log: dict[str, Any]) -> str:
    """What the log itself says of how it was made."""
    return "; ".join(log.get("made", ())) or "how many they were was not kept"


def cell(scores: list[float], within: Any = None) -> str:
    """Return the mean of a score of each seed, with today's interval."""
    made = estimate(scores, within=within)
    span = "" if made.low is None else f" [{made.low:.0f}, {made.high:.0f}]"
    return f"{made.value:.0f}{span}"


if __name__ == "__main__":
    main()
