"""Make every generated page anew, without measuring anything: `make docs`.

docs/algorithms/<name>.md come from each file's docstring, its Config and its evidence;
docs/scores.md and the pages of benchmarks/ from the committed results. Edit the sources, not the
pages.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from sterling import algorithms

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "scores"))
sys.path.append(str(ROOT))
TASKS = ROOT / "benchmarks" / "scores" / "tasks.json"


MEASURED = (  # each writes its page from its committed results when it is given --page
    *("scores/run.py", "bridge/run.py", "offline/run.py", "offline/single_tasks.py"),
    *("offpolicy.py", "reproducible/run.py", "speed/run.py", "statistics/run.py"),
    *("tuning/run.py", "until/run.py", "worlds/run.py", "language/speed.py"),
    *("language/learn.py", "language/ablation.py", "language/staleness.py"),
)


def main() -> None:
    """Write every page."""
    folder = ROOT / "docs" / "algorithms"
    folder.mkdir(exist_ok=True)
    for name in algorithms.ALGORITHMS:
        (folder / f"{name}.md").write_text(page(name))
    for script in MEASURED:
        words = [sys.executable, str(ROOT / "benchmarks" / script), "--page"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    parity = ROOT / "benchmarks" / "parity" / "results"
    (parity / "origins.md").write_text("\n".join(origins(parity)).rstrip() + "\n")


def origins(folder: Path) -> list[str]:
    """Where each file of a folder without a page of its own comes from."""
    from benchmarks import evidence

    lines = ["# Where the numbers come from", ""]
    for file in sorted(folder.glob("*.json")):
        lines += [f"`{file.name}`:", "", *evidence.lines(file)]
    return lines


def page(name: str) -> str:
    """One algorithm: what it computes, its settings, what it has been shown to do."""
    module: Any = algorithms.find(name)
    title, _, body = inspect.getdoc(module).partition("\n")
    title = algorithms.about(name) or title
    source = Path(module.__file__).relative_to(ROOT)
    lines = [f"# {name}: {title}", "", f"Source: [`{source}`](../../{source})", ""]
    lines += ["```text", body.strip("\n"), "```", "", "## Settings", ""]
    lines += ["| field | default | |", "|---|---|---|"]
    lines += [
        f"| `{field}` | `{default!r}` | {words} |"
        for field, default, words in settings(module, algorithms.named(name))
    ]
    lines += ["", "## Evidence", "", *evidence(name)]
    return "\n".join(lines).rstrip() + "\n"


def settings(module: Any, own: dict[str, Any]) -> list[tuple[str, Any, str]]:
    """Name, default and comment of each field of the Config."""
    comments = {}
    for line in inspect.getsource(module.Config).splitlines():
        declared, _, comment = line.partition("  # ")
        comments[declared.split(":")[0].strip()] = comment.strip()
    fields = dataclasses.fields(module.Config)
    return [(f.name, own.get(f.name, f.default), comments.get(f.name, "")) for f in fields]


def evidence(name: str) -> list[str]:
    """The committed scores of this algorithm."""
    from run import kept, score

    lines = ["| environment | steps | seeds | return [95 % interval] | published |"]
    lines += ["|---|---|---|---|---|"]
    for task in sorted(json.loads(TASKS.read_text()), key=lambda task: task["environment"]):
        results = [json.loads(file.read_text())["result"] for file in kept(task)]
        if task["algorithm"] != name or not results:
            continue
        seeds = sum(len(result["seeds"]) for result in results)
        lines.append(
            f"| {task['environment']} | {results[0]['steps']:,} | {seeds} | "
            f"{score(results)} | {task['published']} |"
        )
    return lines if len(lines) > 2 else ["No committed score yet."]


if __name__ == "__main__":
    main()
