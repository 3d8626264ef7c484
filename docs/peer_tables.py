"""The tables of names on docs/migrate/: made from sterling/lookup/peer_names.json."""

from __future__ import annotations

from collections.abc import Callable

from sterling.lookup.peer_names import KINDS, peer_table

TITLES = {
    **{"options": "Settings", "algorithms": "Algorithms", "environments": "Environments"},
    "calls": "In Python",
}
PAGES = {  # page of docs/migrate: the libraries whose names it lists
    "stable-baselines3": ("Stable-Baselines3", "sb3-contrib", "RL Baselines3 Zoo"),
    "cleanrl": ("CleanRL",),
    "d3rlpy-corl": ("d3rlpy", "CORL", "D4RL"),
    "trl": ("TRL",),
}


def names(page: str) -> list[str]:
    """Return the tables of a page as lines of Markdown."""
    made: list[str] = []
    for kind in KINDS:
        rows = [row for row in peer_table(kind) if row.peer in PAGES[page]]
        if not rows:
            continue
        several = len({row.peer for row in rows}) > 1
        made += ["", f"### {TITLES[kind]}", ""]
        made += [f"| {'library | ' if several else ''}there | here | remark |"]
        made += [f"|{'---|' if several else ''}---|---|---|"]
        for row in sorted(rows, key=lambda row: (row.peer, row.word.lower())):
            cells = [row.peer] if several else []
            cells += [f"`{row.word}`", f"`{row.here}`" if row.here else "none", row.remark]
            made.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    versions = sorted({(row.peer, row.version) for kind in KINDS for row in peer_table(kind)})
    told = [f"{name} {version}" for name, version in versions if name in PAGES[page]]
    return [*made[1:], "", f"Names as of {', '.join(told)}."]


def makers() -> dict[str, dict[str, Callable[[], list[str]]]]:
    """Return what makes the marked part of every page."""
    return {
        f"docs/migrate/{page}.md": {"names": lambda page=page: names(page)}  # type: ignore[misc]
        for page in PAGES
    }
