"""Write docs/shootout.md from the committed runs of the shoot-out."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import evidence
from sterling.report.pairwise_contest import compare_on_environments
from sterling.report.pictures import plot_style
from sterling.report.pictures.curve_panels import draw_learning_curves
from sterling.report.runs.read_runs import read_results
from sterling.report.runs.run_groups import RunGroup, group_results

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results"
PAGE = ROOT / "docs" / "shootout.md"
HEAD = """# All algorithms on the same environments

`make shootout` (`benchmarks/shootout/run.py`) trains every algorithm with its default settings on
the same environments and seeds: once for the same number of steps, and once for as many steps as it
makes in the same time on the same two cores (all seeds together, without compilation). A score is
the mean over seeds of the *last* policy's return without exploration, with its 95 % interval.
`sterling compare` decides the pairs: *better than* lists the algorithms whose scores tend to be
lower, at a 5 % error rate over all pairs of the table (see [statistics](statistics.md)); all other
pairs cannot be told apart with these seeds. Results, logs, settings, commits and hardware are in
`benchmarks/shootout/results/`.
"""


def contests() -> list[dict[str, Any]]:
    """Return what contest.json sets."""
    return list(read(HERE / "contest.json"))


def read(path: Path) -> Any:
    """Return the content of a JSON file."""
    return json.loads(path.read_text())


def result_file(contest: dict[str, Any], budget: str, algorithm: str) -> Path:
    """Return where the evidence of a run is kept; ``budget`` is "steps" or "seconds"."""
    return RESULTS / contest["environment"].replace("/", "_") / budget / f"{algorithm}.json"


def write() -> None:
    """Write the page, and the pictures of its curves."""
    parts, missing = [HEAD], []
    for contest in contests():
        made, lacking = sections(contest)
        if made:
            parts += [f"## {contest['environment']}\n", *made]
        missing += lacking
    if missing:
        parts += ["## Not run yet\n", *[f"* {each}" for each in missing], ""]
    parts += ["## Where the numbers come from\n", *origins()]
    PAGE.write_text("\n".join(parts).rstrip() + "\n")


def sections(contest: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the tables and curves of an environment, and what they lack, in words."""
    made, missing, world = [], [], contest["environment"]
    for budget, said in (
        ("steps", f"equal steps, {contest['steps']:,} a seed"),
        ("seconds", f"equal time, {contest['seconds']:,} seconds for {contest['seeds']} seeds"),
    ):
        files = [result_file(contest, budget, name) for name in contest["algorithms"]]
        lacking = [each.stem for each in files if not each.exists()]
        if lacking:
            missing.append(f"{world}, {said}: {', '.join(lacking)}")
        there = [each for each in files if each.exists()]
        if there:
            picture = curves(there)
            title = f"{said[0].upper()}{said[1:]}."
            made.append("\n".join([title, "", *table(there), "", f"![{title}]({picture})", ""]))
    return made, missing


def table(files: list[Path]) -> list[str]:
    """Return a table of these runs, the best first."""
    (made,) = compare_on_environments(groups_of(files))
    runs = {file.stem: read(file) for file in files}
    lines = ["| algorithm | score [95 % interval] | steps | steps/s | better than |"]
    lines.append("|---|---|---|---|---|")
    for one in sorted(made.standings, key=lambda at: -np.nanmean(at.scores)):
        beaten = [p.second for p in made.pairs if p.verdict == "larger" and p.first == one.label]
        beaten += [p.first for p in made.pairs if p.verdict == "smaller" and p.second == one.label]
        run, result = runs[one.label], runs[one.label]["result"]
        speed = "busy machine" if run["busy"] else f"{result['steps_per_second']:,.0f}"
        lines.append(
            f"| {one.label} | {one.made} | {result['steps']:,} | {speed} | "
            f"{', '.join(sorted(beaten)) or '-'} |"
        )
    return lines


def curves(files: list[Path]) -> str:
    """Draw the learning curves of these runs; return the picture's path as seen from docs/."""
    figure = draw_learning_curves(groups_of(files))
    (file, *_) = plot_style.save_figure(figure, files[0].parent / "curves", ["png"])
    return f"../{file.relative_to(ROOT)}"


def groups_of(files: list[Path]) -> list[RunGroup]:
    """Return these runs, each labelled by its algorithm, read as ``sterling compare`` reads run
    folders."""
    with tempfile.TemporaryDirectory() as place:
        words = []
        for file in files:
            run, folder = read(file), Path(place) / file.stem
            folder.mkdir()
            for name in ("config", "result"):
                (folder / f"{name}.json").write_text(json.dumps(run[name]))
            (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(x)}\n" for x in run["log"]))
            words.append(f"{file.stem}={folder}")
        return group_results(read_results(words)[0])[0]


def origins() -> list[str]:
    """Return the commits, machines and commands of all runs, each once."""
    said: dict[str, list[str]] = {}
    for file in sorted(RESULTS.glob("*/*/*.json")):
        line = " ".join(each.strip("*") for each in evidence.lines(file) if each)
        said.setdefault(line, []).append("/".join(file.with_suffix("").parts[-3:]))
    return [f"* {', '.join(places)}: {line}" for line, places in said.items()] or ["No run yet."]
