"""Write which planted bugs the tests found: by folder, by operator, and every survivor in words."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from sites import Mutant

from benchmarks import evidence

READ = Path(__file__).parent / "read.json"  # survivors as somebody read them
ASSERTED = ("assert", "AssertionError")
Row = dict[str, Any]


def trials(work: Path) -> dict[tuple[str, str], Row]:
    """Return the last outcome of every mutant tried, by its name and its function's digest."""
    file = work / "trials.jsonl"
    if not file.exists():
        return {}
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {(row["name"], row["digest"]): row for row in rows}


def write(work: Path, wanted: list[Mutant], options: Any, begun: evidence.Block) -> None:
    """Write the JSON and the Markdown page beside it."""
    known, read = trials(work), json.loads(READ.read_text())
    keys = {(m.name, m.digest): m for m in wanted}
    rows = [_row(m, known[key], read) for key, m in keys.items() if key in known]
    control = work / "control.json"
    content = {
        "asked": len(wanted),
        "control": json.loads(control.read_text()) if control.exists() else None,
        "mutants": rows,
    }
    evidence.write(options.out.with_suffix(".json"), content, begun, options.seed)
    write_page(options.out)
    print(f"wrote {options.out}: {len(rows)} of {len(wanted)} mutants tried")


def write_page(out: Path) -> None:
    """Write the page from the JSON beside it."""
    file = out.with_suffix(".json")
    out.write_text(markdown(json.loads(file.read_text()), evidence.lines(file)))


def _row(mutant: Mutant, trial: Row, read: dict[str, str]) -> Row:
    """Join what a mutant is, what became of it, and what a reader said of it."""
    row = {
        "name": mutant.name,
        "folder": mutant.folder,
        "operator": mutant.operator,
        "where": f"{mutant.file}:{mutant.line}",
        "function": mutant.function,
        "change": f"{mutant.before} -> {mutant.after}",
    }
    row |= {key: value for key, value in trial.items() if key not in ("name", "digest")}
    return row | ({"read": read[mutant.name]} if mutant.name in read else {})


def is_equivalent(row: Row) -> bool:
    """Whether a reader found that the change cannot make any number wrong."""
    return row["outcome"] != "killed" and row.get("read", "").startswith("equivalent")


def markdown(content: Row, origin: list[str]) -> str:
    """Return the page; ``origin`` says where its numbers come from."""
    rows, control = content["mutants"], content["control"]
    lines = [
        "# Planted bugs",
        "",
        f"{len(rows)} small bugs (of {content['asked']} that were drawn), planted one at a time",
        "in a copy of the repository, and whether a test failed. A bug that cannot make any number",
        "wrong is *equivalent*; each was read, and its reason stands below. `by an assertion` are",
        "those that a test found by comparing numbers, not by a crash, a shape or a hang.",
        "",
        *origin,
    ]
    if control:
        said = "pass" if control["outcome"] == "survived" else f"do not all pass: {control}"
        lines += [f"The {control['tests']} tests that found a bug {said} without one.", ""]
    lines += [*_table("folder", rows), "", *_table("operator", rows), ""]
    return "\n".join(lines + _survivors(rows)) + "\n"


def _table(by: str, rows: list[Row]) -> list[str]:
    """Return one line for each value of the column ``by``, and one for all."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[by]].append(row)
    head = [by, "planted", "found", "by an assertion", "equivalent", "missed", "share found"]
    lines = [f"| {' | '.join(head)} |", "| --- |" + " ---: |" * (len(head) - 1)]
    for name, group in [*sorted(groups.items()), ("all", rows)]:
        killed = [row for row in group if row["outcome"] == "killed"]
        plain = sum(row.get("reason", "").startswith(ASSERTED) for row in killed)
        equal = sum(is_equivalent(row) for row in group)
        counted = len(group) - equal
        share = f"{100 * len(killed) / counted:.1f} %" if counted else ""
        numbers = [len(group), len(killed), plain, equal, counted - len(killed), share]
        lines.append(f"| {name} | " + " | ".join(map(str, numbers)) + " |")
    return lines


def _survivors(rows: list[Row]) -> list[str]:
    """Return the equivalent ones and the missed ones, one line each."""
    lines = []
    left = [row for row in rows if row["outcome"] != "killed"]
    for title, wanted in (("Missed", False), ("Equivalent", True)):
        chosen = [row for row in left if is_equivalent(row) is wanted]
        lines += [f"## {title}", ""] + ([] if chosen else ["None.", ""])
        for row in chosen:
            change = row["change"].replace("|", "\\|")
            why = row.get("read", f"not read yet ({row['outcome']})")
            lines += [f"* `{row['where']}` {row['function']}, {row['operator']}: `{change}`: {why}"]
        lines += [""] if chosen else []
    return lines
