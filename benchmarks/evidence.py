"""Write result files that say which commit, machine, versions, seeds and command made them.

Every script under ``benchmarks/`` calls ``begin`` before it measures and ``write`` when it is done.
A tree with uncommitted changes is refused before anything is measured. Files that were measured
without it are listed in ``unrecorded.json`` with what is missing; ``lines`` prints either for a
page. Uses the standard library only, because Pythons without Sterling import it too.
"""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
UNRECORDED = ROOT / "benchmarks" / "unrecorded.json"
FIELDS = ("commit", "date", "command", "seeds", "hardware", "versions")
CODE = ("sterling", "benchmarks", ":(exclude,glob)benchmarks/**/results/**")  # results are no code
PACKAGES = (
    *("sterling", "jax", "jaxlib", "numpy", "scipy", "equinox", "optax", "gymnasium", "envpool"),
    *("torch", "transformers", "trl", "peft", "stable-baselines3", "sbx-rl", "d3rlpy"),
)
Block = dict[str, Any]
INDENTED = functools.partial(json.dumps, indent=1)


def begin(root: Path = ROOT) -> Block:
    """Return commit, date, command, hardware and versions; exit with one line where code differs
    from its commit."""
    refuse_changes(root, CODE)
    return {
        "commit": _git(root, "rev-parse", "HEAD"),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command(sys.argv),
        "hardware": hardware(),
        "versions": versions(),
    }


def refuse_changes(root: Path, places: Sequence[str]) -> None:
    """Exit with one line where files in these places differ from their commit."""
    changed = _git(root, "status", "--porcelain", "--", *places)
    if changed:
        first = changed.splitlines()[0].strip()
        sys.exit(f"evidence needs a committed tree, and this one differs ({first}): commit first")


def of_run(config: dict[str, Any], command: str) -> Block:
    """Return the block of a training from its run folder's ``config.json``; exit with one line
    where the code that trained differed from its commit."""
    git = config["git"] or {}
    if not git.get("commit") or git.get("dirty"):
        sys.exit("this run was trained by code that differs from its commit: commit, train again")
    return {
        "commit": git["commit"],
        "date": config["time"],
        "command": command,
        "hardware": config["hardware"],
        "versions": {name: each for name, each in config["versions"].items() if each},
    }


def write(
    path: Path,
    content: dict[str, Any],
    begun: Block,
    seeds: Any,
    text: Callable[[Any], str] = INDENTED,
) -> None:
    """Write ``content`` as JSON (made by ``text``) with the block under ``provenance``."""
    _save(path, content | {"provenance": [{**begun, "seeds": seeds}]}, text)


def write_part(path: Path, name: str, part: Any, begun: Block, seeds: Any) -> dict[str, Any]:
    """Write one part of a file whose parts are measured one by one; return all of the file.

    The file has ``parts`` by name, and one block for each that was measured with this module.
    """
    content = json.loads(path.read_text()) if path.exists() else {"provenance": [], "parts": {}}
    content["parts"][name] = part
    kept = [block for block in content["provenance"] if block["of"] != name]
    content["provenance"] = [*kept, {"of": name, **begun, "seeds": seeds}]
    _save(path, content)
    return content


def measure_parts(
    path: Path,
    parts: dict[str, Callable[[], Any]],
    seeds: dict[str, int],
    page: Callable[[], list[str]],
) -> None:
    """Measure the parts that the command line names, or all, into ``path``, each with so many
    ``seeds``; and write the ``page`` beside it. After ``--page`` the page alone."""
    words = sys.argv[1:]
    if words != ["--page"]:
        wrong = [word for word in words if word not in parts]
        if wrong:
            sys.exit(f"there is no part {wrong[0]}; say --page or some of {', '.join(parts)}")
        begun = begin()
        for name in words or parts:
            write_part(path, name, parts[name](), begun, list(range(seeds[name])))
    path.with_suffix(".md").write_text("\n".join(page()).rstrip() + "\n")


def note(path: Path, name: str, value: Any) -> None:
    """Write a fact that all parts of a file share; exit with one line where another is there."""
    content = json.loads(path.read_text()) if path.exists() else {"provenance": [], "parts": {}}
    if content.setdefault(name, value) != value:
        sys.exit(f"{path} has parts of another {name}; move the file away to measure all anew")
    _save(path, content)


def lines(path: Path) -> list[str]:
    """Return Markdown that says where a result file comes from, or what is not known of it."""
    content, place = json.loads(path.read_text()), path.resolve()
    name = str(place.relative_to(ROOT)) if place.is_relative_to(ROOT) else path.name
    blocks = content.get("provenance", [])
    grouped: dict[str, list[str]] = {}
    for block in blocks:
        grouped.setdefault(told(block), []).append(block.get("of", ""))
    several = len(grouped) > 1 or unrecorded(name)
    found = []
    for text, parts in grouped.items():
        found.append(f"{', '.join(parts)}: {text}" if several and all(parts) else text)
    if old := unrecorded(name):
        parts = f"{', '.join(old['parts'])}: " if blocks and "parts" in old else ""
        found.append(f"{parts}{_old(old)}")
    return [line for text in found for line in (f"*{text}*", "")]


def told(block: Block) -> str:
    """Return one sentence: commit, date, machine, versions, seeds, command."""
    machine = block["hardware"]
    where = f"{machine['cores']} cores of {machine['cpu']}, {machine['backend']}"
    known = [f"{each} {block['versions'][each]}" for each in PACKAGES if each in block["versions"]]
    return (
        f"Measured at commit {block['commit'][:10]} on {block['date'][:10]} ({where}; "
        f"{', '.join(known)}), seeds: {seeds_told(block['seeds'])}; by `{block['command']}`."
    )


def seeds_told(seeds: Any) -> str:
    """Return seeds as text: a row of numbers shortened to its ends."""
    if not isinstance(seeds, Sequence) or isinstance(seeds, str):
        return str(seeds)
    row = list(seeds)
    if len(row) > 2 and row == list(range(row[0], row[0] + len(row))):
        return f"{row[0]} to {row[-1]}"
    return ", ".join(map(str, row))


def unrecorded(name: str) -> dict[str, Any] | None:
    """Return what is said of a file that was measured before provenance was written."""
    found: dict[str, Any] = json.loads(UNRECORDED.read_text())
    return found.get(name)


def _old(old: dict[str, Any]) -> str:
    if "dirty" in old:
        return (
            f"Trained by code that differed from its commit {old['dirty'][:10]} "
            f"({old['measured'][:10]}); the tree it ran on is not recorded. Not measured again."
        )
    known = f" Known: {old['known']}." if "known" in old else ""
    return (
        f"Measured before provenance was written; not recorded: {', '.join(old['missing'])}. "
        f"Committed in {old['commit'][:10]} on {old['committed'][:10]}; the tree it ran on is not "
        f"recorded.{known} Not measured again."
    )


def command(words: Sequence[str]) -> str:
    """Return the command line without folders of this machine."""
    script, rest = Path(words[0]), words[1:]
    inside = script.is_absolute() and script.is_relative_to(ROOT)
    shown = script.relative_to(ROOT) if inside else script
    said = [Path(word).name if word.startswith("/") else word for word in rest]
    return shlex.join(["python", str(shown), *said])


def hardware() -> dict[str, Any]:
    """Return platform, processor, cores, memory in bytes, and what JAX computes on if it is
    loaded."""
    jax = sys.modules.get("jax")
    return {
        "platform": f"{platform.system()}-{platform.machine()}",
        "backend": jax.default_backend() if jax else "cpu",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def versions() -> dict[str, str]:
    """Return Python's version and those of the packages that are installed here."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    facts = Path("/proc/cpuinfo")
    rows = facts.read_text().splitlines() if facts.exists() else []
    names = [row.split(":", 1)[1].strip() for row in rows if row.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _git(root: Path, *words: str) -> str:
    asked = ["git", "-C", str(root), *words]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"evidence needs the repository's git history: {error}")


def _save(
    path: Path,
    content: dict[str, Any],
    text: Callable[[Any], str] = INDENTED,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text(content) + "\n")
    os.replace(part, path)
