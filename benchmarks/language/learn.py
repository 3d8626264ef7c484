"""From random weights to right answers: a short SFT, then the policy gradient, several seeds.

    python benchmarks/language/learn.py [--only NAME ...] [--page]

Every task begins with a new model, learns the form of the answers from demonstrations, and goes on
by reward alone. Writes benchmarks/language/results/learn.{json,md} and a picture of the curves;
runs are resumable in runs/language/.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RUNS, OUT = ROOT / "runs" / "language", Path(__file__).parent / "results" / "learn"
SEEDS, EPISODES = 3, 256
TASKS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "learn.json").read_text())


def main() -> None:
    """Run what is asked for, write the page of all that is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=TASKS, default=list(TASKS))
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    chosen = parser.parse_args()
    path = OUT.with_suffix(".json")
    for name in () if chosen.page else chosen.only:
        begun = evidence.begin()
        found, config = run(name)
        begun = evidence.of_run(config, begun["command"])
        evidence.write_part(path, name, found, begun, list(range(SEEDS)))
    parts = json.loads(path.read_text())["parts"]
    results = {name: parts[name] for name in TASKS if name in parts}
    OUT.with_suffix(".md").write_text("\n".join(page(results)) + "\n")
    draw(results)
    print("\n".join(page(results)))


def run(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What each phase of a task left, and the configuration of the last."""
    task = TASKS[name]
    begun, learned = RUNS / f"{name}-sft", RUNS / f"{name}-{task['algorithm']}"
    shared = {name: task[name] for name in ("levels", "limit", "held_out") if name in task}
    first = {"model": task["model"], **task["sft"], "evaluate_every": task["sft"]["updates"]}
    found = {
        "sft": phase("sft", task["world"], begun, shared | first),
        "rl": phase(
            task["algorithm"], task["world"], learned, shared | task["rl"] | {"model": begun}
        ),
    }
    facts = json.loads((learned / "config.json").read_text())
    rows = [json.loads(line) for line in (learned / "metrics.jsonl").read_text().splitlines()]
    curve = {"update": [row["update"] for row in rows]}
    curve["score"] = [row["data/score"] for row in rows]
    more = {"held_out": facts["speech"].get("held_out", 0.0), "curve": curve}
    return found | more, facts


def phase(algorithm: str, world: str, path: Path, words: dict[str, Any]) -> dict[str, Any]:
    """One run's result; made, resumed or read."""
    import sterling

    if (path / "config.json").exists():
        begun = json.loads((path / "config.json").read_text())["updates"]
        more = words["updates"] if words["updates"] > begun else None
        made = sterling.resume(path, updates=more)
    else:
        words = words | {"model": str(words["model"]), "seeds": SEEDS}
        made = sterling.train(algorithm, world, out=path, evaluate_episodes=EPISODES, **words)
    return made.result | {"model": Path(words["model"]).name}  # no folder of one machine


def page(results: dict[str, Any]) -> list[str]:
    """A table: success before and after."""
    lines = ["# From random weights to right answers", ""]
    lines += [
        f"{SEEDS} seeds; mean reward of sampled answers to {EPISODES} questions drawn apart from",
        "training's, [95 % interval over seeds]; each seed's; seconds for all seeds together.",
        "A share of all questions was held out, and those are asked. *In training*: answers to",
        "the others, in the log's last row; where a level has few (arithmetic 200, countdown-mini",
        "264), a model can learn them by heart.",
        "",
        *evidence.lines(OUT.with_suffix(".json")),
        "| task | held out | after SFT | after | in training | updates | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, found in results.items():
        sft, rl = found["sft"], found["rl"]
        updates = f"{sft['updates']} + {rl['updates']}"
        seconds = f"{sft['wall_seconds']:.0f} + {rl['wall_seconds']:.0f}"
        after = f"{told(rl)} ({rl['algorithm']})"
        asked = " / ".join(f"{score:.2f}" for score in found["curve"]["score"][-1])
        lines += [
            f"| {name} | {found.get('held_out', 0.0):.0%} | {told(sft)} | {after} | {asked} | "
            f"{updates} | {seconds} |"
        ]
    return lines


def told(result: dict[str, Any]) -> str:
    """A number with its interval, by today's rule, and each seed's."""
    from sterling.statistics import estimate

    final = result["final"]["return"]
    made = estimate(final["per_seed"], within=final.get("within"))
    seeds = " / ".join(f"{score:.2f}" for score in final["per_seed"])
    return f"{made.value:.3f} [{made.low:.3f}, {made.high:.3f}]; {seeds}"


def draw(results: dict[str, Any]) -> None:
    """Each task's success while it learns, every seed a line."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(results), figsize=(3.2 * len(results), 2.8), sharey=True, squeeze=False
    )
    for axis, (name, found) in zip(axes[0], results.items(), strict=True):
        axis.plot(found["curve"]["update"], found["curve"]["score"], lw=1)
        axis.set(title=name, xlabel="updates", ylim=(0, 1.02))
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("reward of sampled answers")
    figure.tight_layout()
    figure.savefig(OUT.with_suffix(".png"), dpi=150)


if __name__ == "__main__":
    main()
