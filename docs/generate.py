"""Make every generated page anew, without measuring anything: `make pages`.

docs/algorithms/<name>.md come from each file's docstring, its Config and its evidence;
docs/scores.md, the pages of benchmarks/ and the marked parts of
docs/{tour,report,offline,statistics,reliability}.md from the committed results;
docs/life-of-a-run.md from a traced run, the rooms in docs/design.md from the imports, the fields in
docs/extending.md from their classes, and the tables of docs/migrate/ from the names of other
libraries. Edit the sources, not the pages.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from sterling import algorithms

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "scores"))
sys.path.append(str(ROOT))
sys.path.append(str(ROOT / "docs"))
import life_of_a_run  # noqa: E402
import peer_tables  # noqa: E402
import rooms  # noqa: E402
import signatures  # noqa: E402
from docstring_markdown import docstring_markdown  # noqa: E402

TASKS = ROOT / "benchmarks" / "scores" / "tasks.json"
VERDICTS = ROOT / "benchmarks" / "results" / "verdicts.json"
MEASURED = (  # each writes its page from its committed results when it is given --page
    *("scores/run.py", "bridge/run.py", "offline/run.py", "offline/single_tasks.py"),
    *("offpolicy.py", "reproducible/run.py", "speed/run.py", "statistics/run.py"),
    *("statistics/intervals.py", "statistics/verdicts.py", "mutants/run.py"),
    *("tuning/run.py", "until/run.py", "worlds/run.py", "language/speed.py"),
    *("language/learn.py", "language/ablation.py", "language/staleness.py", "starts/run.py"),
    "memory/run.py",
    "goals/run.py",
    "adaptation/run.py",
    "exploration/run.py",
    "pixels/run.py",
    "deploy/run.py",
    "shootout/run.py",
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
    (ROOT / "docs" / "life-of-a-run.md").write_text(life_of_a_run.page())
    for name in MARKED:
        (ROOT / name).write_text(renewed(name))


def renewed(name: str) -> str:
    """Return a page with its marked parts made anew: each stands between two comments."""
    text = (ROOT / name).read_text()
    for part, make in MARKED[name].items():
        begin, end = f"<!-- {part}: made by `make docs` -->", "<!-- end -->"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"{name} lacks the mark {begin}")
        made = "\n".join([begin, *make(), end])
        text = pattern.sub(lambda _, made=made: made, text, count=1)
    return text


def results(name: str) -> Any:
    """A file of benchmarks/results."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def damage() -> list[str]:
    """Damaged files: counts by kind, and where they come from."""
    from benchmarks.reliability import page

    return page.damage()


def kills() -> list[str]:
    """Killed runs: counts by kind, and where they come from."""
    from benchmarks.reliability import page

    return page.kills()


def wrong() -> list[str]:
    """Wrong verdicts of ``compare``: the largest shares."""
    from benchmarks.statistics import verdicts_page

    return verdicts_page.largest(VERDICTS)


def decided() -> list[str]:
    """What ``compare`` sees of differences."""
    from benchmarks.statistics import verdicts_page

    return verdicts_page.powers(VERDICTS)


def bridge() -> list[str]:
    """Every contender of the bridge: experience and return."""
    from benchmarks.bridge.run import WORLD, cell
    from sterling.references.return_bounds import return_bounds

    content = results("bridge")
    lines = ["| | steps of experience | return |", "|---|---|---|"]
    alone = [name for name in content["parts"] if "online" in name and "then" not in name]
    for name in dict.fromkeys([*alone, *content["parts"]]):  # online learning alone comes first
        found = content["parts"][name]
        span = cell(found["final"]["return"]["per_seed"], return_bounds(WORLD))
        lines.append(f"| {name} | {found['experience']:,} | {span} |")
    return lines


def scores() -> list[str]:
    """Every score beside its published value, with what was changed on the way."""
    from run import kept, score

    lines = ["| | Sterling | published |", "|---|---|---|"]
    for task in json.loads(TASKS.read_text()):
        found = [json.loads(file.read_text())["result"] for file in kept(task)]
        if found:
            seeds = sum(len(each["seeds"]) for each in found)
            name = f"{task['algorithm'].upper()} {task['environment']} @{budget(task['steps'])}"
            more = "" if seeds == 5 else f", {seeds} seed{'s' * (seeds > 1)}"
            mark = " (changed: see the page)" if "changed" in task else ""
            lines.append(f"| {name}{more}{mark} | {score(found)} | {task['published']} |")
    return lines


def budget(steps: int) -> str:
    """1000000 as 1M, 50000 as 50k."""
    return f"{steps // 10**6}M" if steps >= 10**6 else f"{steps // 1000}k"


def printed(words: str) -> list[str]:
    """Return a command and what it prints about the committed scores, as a block of Markdown."""
    shown = subprocess.run(
        [sys.executable, "-m", "sterling", *words.split()[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,  # check-scores leaves with 1 where a score is below
    ).stdout
    lines = [f"$ {words}", *shown.splitlines()]
    return ["", *(f"    {line}".rstrip() for line in lines), ""]


def compared() -> list[str]:
    """SAC and TD3 on Pendulum-v1, beside one another."""
    stem = "benchmarks/scores/results"
    return printed(f"sterling compare {stem}/sac-Pendulum-v1.json {stem}/td3-Pendulum-v1.json")


def learned() -> list[str]:
    """TD3+BC and BC on a log of HalfCheetah-v5, beside one another."""
    stem, log = "benchmarks/offline/results", "HalfCheetah-v5-medium-replay.json"
    return printed(f"sterling compare td3bc={stem}/td3bc-{log} bc={stem}/bc-{log}")


def checked() -> list[str]:
    """PPO on two tasks beside the published scores."""
    stem = "benchmarks/scores/results"
    return printed(
        f"sterling check-scores {stem}/ppo-HalfCheetah-v5.json {stem}/ppo-Acrobot-v1.json"
    )


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
    title, _, body = inspect.getdoc(module).partition("\n\n")
    title = algorithms.preset_summary(name) or " ".join(title.split())
    source = Path(module.__file__).relative_to(ROOT)
    heading = title if title.endswith("...") else title.removesuffix(".")
    lines = [f"# {name}: {heading}", "", f"Source: [`{source}`](../../{source})", ""]
    lines += [docstring_markdown(body), "", "## Settings", ""]
    lines += ["| field | default | |", "|---|---|---|"]
    lines += [
        f"| `{field}` | `{default!r}` | {words} |"
        for field, default, words in settings(module, algorithms.preset_fields(name))
    ]
    lines += ["", "## Evidence", "", *evidence(name)]
    return "\n".join(lines).rstrip() + "\n"


def settings(module: Any, own: dict[str, Any]) -> list[tuple[str, Any, str]]:
    """Name, default and comment of each field of the Config, those of its bases included."""
    comments, bases = {}, [each for each in module.Config.__mro__[::-1] if each is not object]
    for line in "\n".join(map(inspect.getsource, bases)).splitlines():
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


MARKED = {  # page: the parts of it that are made here
    "docs/tour.md": {"comparison": compared, "bridge": bridge, "scores": scores},
    "docs/design.md": {"rooms": rooms.picture, "table": rooms.table},
    "docs/extending.md": {"signatures": signatures.table},
    "docs/report.md": {"compared": compared, "checked": checked},
    "docs/offline.md": {"learned": learned},
    "docs/statistics.md": {"wrong": wrong, "decided": decided},
    "docs/reliability.md": {"damage": damage, "kills": kills},
    **peer_tables.makers(),
}


if __name__ == "__main__":
    main()
