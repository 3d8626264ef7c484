"""Does the model of a program that knows nothing of Sterling learn, however many programs run?

    python benchmarks/language/agent_program.py [--page]

The program (calculator_agent.py) asks a model over HTTP for sums of two numbers, and lets it call a
calculator first. The same short SFT on other sums for all; then GRPO from the program's answers
alone, judged by the last line that it prints: three seeds, and the same twice more with 1 and 5
programs at a time in place of 16, for fewer updates, whose weights must be equal bit for bit.
Writes benchmarks/language/results/agent_program.{json,md}.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RUNS, OUT = ROOT / "runs" / "agent_program", Path(__file__).parent / "results" / "agent_program"
PROGRAM = Path(__file__).with_name("calculator_agent.py")
TASKS, DEMONSTRATIONS, HELD_OUT, SEEDS = 3_000, 3_000, 0.3, 3
SFT, UPDATES, COMPARED = 120, 100, 8  # updates; the last of the runs whose weights are compared
AT_ONCE = (1, 5, 16)
PROBLEMS, SAMPLES = 128, 8  # held-out sums, and answers to each
LIMITS: dict[str, Any] = {"limit": 8, "agent_turns": 2}
STEPS: dict[str, Any] = {"prompts": 16, "group": 8, "lr": 1e-3, "held_out": HELD_OUT}


def main() -> None:
    """Train, compare, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    if not parser.parse_args().page:
        measure()
    content = json.loads(OUT.with_suffix(".json").read_text())
    OUT.with_suffix(".md").write_text("\n".join(page(content["parts"])) + "\n")
    print(OUT.with_suffix(".md").read_text())


def measure() -> None:
    """Train from one SFT for all, and evaluate on held-out sums."""
    import sterling

    begun, path = evidence.begin(), OUT.with_suffix(".json")
    shutil.rmtree(RUNS, ignore_errors=True)
    tasks, texts = write_sums(RUNS)
    start = RUNS / "sft"
    sterling.train("sft", texts=texts, model="nano", updates=SFT, seeds=SEEDS, out=start)
    for count in AT_ONCE:
        whole = count == max(AT_ONCE)
        run = train(start, tasks, RUNS / f"{count}", count, COMPARED)
        part = {"weights": digest(run.agent), "seconds": run.result["time"]["seconds"]}
        seeds = list(range(SEEDS))
        evidence.write_part(path, f"{count} at a time", part, begun, seeds)
        if whole:
            run = train(start, tasks, RUNS / "whole", count, UPDATES)
            found = sterling.evaluate(run, problems=PROBLEMS, samples=SAMPLES)
            evidence.write_part(path, "held-out sums", found, begun, seeds)


def write_sums(folder: Path) -> tuple[str, str]:
    """Write tasks, and demonstrations of other sums; return the two files."""
    pairs = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    random.Random(0).shuffle(pairs)
    folder.mkdir(parents=True)
    asked, shown = pairs[:TASKS], pairs[TASKS : TASKS + DEMONSTRATIONS]
    tasks = [{"prompt": f"{a}+{b}", "answer": a + b} for a, b in asked]
    texts = [{"messages": conversation(a, b)} for a, b in shown]
    for name, lines in (("tasks", tasks), ("demonstrations", texts)):
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text)
    return str(folder / "tasks.jsonl"), str(folder / "demonstrations.jsonl")


def conversation(a: int, b: int) -> list[dict[str, str]]:
    """What the program and a good model say."""
    said = [f"{a}+{b}", f"?{a}+{b}", f"={a + b}", f"{a + b}"]
    roles = ("user", "assistant") * 2
    return [{"role": role, "content": text} for role, text in zip(roles, said, strict=True)]


def train(start: Path, tasks: str, out: Path, at_once: int, updates: int) -> Any:
    """Train the program's model."""
    import sterling

    words = STEPS | LIMITS | {"agents_at_once": at_once, "evaluate_every": updates}
    return sterling.train(
        "grpo", tasks, agent=f"{PROGRAM}:run", model=str(start), updates=updates, seeds=SEEDS,
        out=out, **words,
    )  # fmt: skip


def digest(agent: Any) -> str:
    """Return a hash of all seeds' weights."""
    import jax
    import numpy as np

    leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(agent.state.model)]
    return hashlib.sha256(b"".join(leaves)).hexdigest()[:16]


def page(found: dict[str, Any]) -> list[str]:
    """What was learned, and whether the weights are equal."""
    return [json.dumps(found, indent=1)]


if __name__ == "__main__":
    main()
