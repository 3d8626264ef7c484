"""Draw the rooms of Sterling for docs/design.md, from the imports: a picture and a table."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "sterling"
VOCABULARY = "vocabulary"  # files directly in sterling/ that everything may import
DOORS = ("__init__", "__main__", "cli", "cli_options")  # files that may import everything


def room_of(module: str) -> str:
    """Return the room of a dotted module: the first folder below ``sterling``."""
    words = module.split(".")
    folder = PACKAGE / words[1] if len(words) > 1 else PACKAGE
    if folder.is_dir() and folder != PACKAGE:
        return words[1]
    return "cli" if len(words) < 2 or words[1] in DOORS else VOCABULARY


def imported(path: Path) -> set[str]:
    """Return the dotted names that a file imports from Sterling, lazily or for types included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sterling":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.split(".")[0] == "sterling"}
    return found


def graph() -> dict[str, set[str]]:
    """Return, for each room, the other rooms that its files import."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        here = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
        if here != "cli":
            found.setdefault(here, set()).update(room_of(name) for name in imported(path))
    return {room: others - {room, "cli"} for room, others in found.items()}


def reached(edges: dict[str, set[str]], start: str) -> set[str]:
    """Return every room that can be reached from ``start``."""
    seen, todo = set(), [start]
    while todo:
        for other in edges.get(todo.pop(), set()) - seen:
            seen.add(other)
            todo.append(other)
    return seen


def picture() -> list[str]:
    """Return a Mermaid diagram of the rooms; an arrow leads from a room to one that it imports.

    Arrows that follow from others are left out.
    """
    edges = graph()
    lines = ["", "```mermaid", "flowchart TD"]
    for room in list(graphlib.TopologicalSorter(edges).static_order())[::-1]:
        beyond = set().union(*(reached(edges, other) for other in edges.get(room, set())), set())
        lines += [f"    {room} --> {other}" for other in sorted(edges.get(room, set()) - beyond)]
    return [*lines, "```", ""]


def table() -> list[str]:
    """Return a table of all rooms, those inside rooms included: the first line of each."""
    lines = ["", "| room | what is inside |", "|---|---|"]
    for path in sorted(PACKAGE.rglob("*/__init__.py")):
        about = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0]
        lines.append(f"| `{path.parent.relative_to(PACKAGE)}/` | {' '.join(about.split())} |")
    return [*lines, ""]
