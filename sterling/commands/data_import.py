"""``sterling data import``: convert dataset files, or read tables of steps and check them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sterling.commands.options import option_values

EXPLAINED = """\
A table (.csv, .tsv or .parquet) has one row for every step: the observation, the action
taken there, and the reward that followed. Say which columns hold what; names may contain
* and ?. The successor of a row is the next row of the same episode.

  sterling data import log.csv --obs a,b --action u --reward r --episode id \\
      --terminal done --out data/mine
  sterling data import log.parquet --obs "sensor_*" --action u,v --reward r \\
      --time t --gap 60 --drop-incomplete --out data/mine
  sterling data import log.csv --obs a,b --action u --discrete u=left,stay,right --reward r \\
      --episode id --terminal-at-end --out data/mine
  sterling data import hopper.hdf5 data/hopper --environment Hopper-v5

The dataset is checked at the end, as by sterling data check. Exit code 0; 1 if a table's
check finds errors, 2 for wrong use."""
REFERENCE_HELP = "the returns that count as 0 and as 1 (reference scores)"
TABLE_OPTIONS = {  # option -> (metavar, help); a None metavar is a switch
    "obs": ("COLUMNS", "columns of observations; texts become one number for each text"),
    "action": (
        "COLUMNS",
        "columns of actions; texts and whole numbers from 0 to 255 are choices",
    ),
    "reward": ("COLUMN", "the column of rewards, or a number: the reward of every row"),
    "episode": ("COLUMNS", "rows with equal entries are one episode"),
    "terminal": ("COLUMN", "flags: the episode terminated in this row"),
    "timeout": ("COLUMN", "flags: the episode was truncated after this row"),
    "next_obs": ("COLUMNS", "columns of the successor, in the order of --obs"),
    "time": ("COLUMN", "a number or a date: rows are put in this order"),
    "gap": ("SECONDS", "a longer pause in --time separates episodes (units of --time; dates: s)"),
    "discrete": ("COLUMNS", "actions that are choices; u=left,right numbers them; repeatable"),
    "continuous": ("COLUMNS", "actions that are real numbers, though they are whole"),
    "extra": ("COLUMNS", "further numbers to keep for every row, such as log_prob"),
    "terminal_at_end": (None, "every episode terminated in its last row"),
    "one_episode": (None, "the whole table is one episode"),
    "drop_incomplete": (None, "leave out rows with missing entries, and split episodes there"),
}
ROLES = {  # options whose columns are printed as they were typed -> what they give
    **{"reward": "rewards", "episode": "episodes", "terminal": "terminated"},
    **{"timeout": "truncated", "next_obs": "next observations", "time": "time", "extra": "extra"},
}


def add_options(one: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling data import``."""
    one.epilog, one.formatter_class = EXPLAINED, argparse.RawDescriptionHelpFormatter
    given = "datasets in any format, or tables: files or folders; without --out, the last is OUT"
    one.add_argument("sources", nargs="+", type=Path, metavar="SOURCE", help=given)
    one.add_argument("--out", type=Path, metavar="OUT", help="folder to write")
    one.add_argument("--format", default="", help="format of the sources (detected from content)")
    spaces = "the environment that made the sources; its spaces replace guessed ones"
    one.add_argument("--environment", default="", metavar="ENV", help=spaces)
    one.add_argument(
        "--reference", nargs=2, type=float, metavar=("LOW", "HIGH"), help=REFERENCE_HELP
    )
    cut = "time limit of flat files that do not mark truncations"
    one.add_argument("--limit", type=int, metavar="STEPS", help=cut)
    word = "accept a file that was changed after its hash was written"
    one.add_argument("--changed", action="store_true", help=word)
    _add_table_options(one.add_argument_group("tables").add_argument)


def _add_table_options(add: Any) -> None:
    for name, (metavar, words) in TABLE_OPTIONS.items():
        option = "--" + name.replace("_", "-")
        if metavar is None:
            add(option, action="store_true", default=None, help=words)
        elif name == "gap":
            add(option, type=option_values.number, metavar=metavar, help=words)
        elif name == "discrete":
            add(option, action="append", metavar=metavar, help=words)
        else:
            add(option, metavar=metavar, help=words)


def carry_out(chosen: argparse.Namespace) -> int:
    """Import the sources; return 1 if a table's check finds errors."""
    from sterling.data.tables.table_files import is_table_file
    from sterling.types import Mistake

    sources, out = chosen.sources, chosen.out
    if out is None:
        if len(sources) < 2:
            raise Mistake("no folder to write is named; add --out FOLDER")
        *sources, out = sources
    given = {name: getattr(chosen, name) for name in TABLE_OPTIONS}
    asked = {name: value for name, value in given.items() if value is not None}
    tables = [path for path in sources if is_table_file(path)]
    if not tables and not asked:
        return _import_files(chosen, sources, out.expanduser())
    if len(tables) < len(sources):
        other = next(path for path in sources if not is_table_file(path))
        what = ", ".join("--" + name.replace("_", "-") for name in asked) or "a .csv file"
        raise Mistake(f"{other} is no table (.csv, .tsv, .parquet), which {what} is for")
    for name in ("format", "limit", "changed"):
        if getattr(chosen, name):
            raise Mistake(f"--{name} has no effect on tables; leave it out")
    return _import_tables(chosen, sources, out.expanduser(), asked)


def _import_files(chosen: argparse.Namespace, sources: list[Path], out: Path) -> int:
    from sterling.data.file_conversion import convert_files

    made = convert_files(
        sources,
        out,
        format=chosen.format,
        environment=chosen.environment,
        reference=tuple(chosen.reference) if chosen.reference else None,
        limit=chosen.limit,
        changed=chosen.changed,
    )
    print(f"{out}: {made.episodes} episodes, {made.rows} rows, hash {made.hash[:12]}")
    print(f"columns: {', '.join(made.columns)}")
    for source in made.facts.sources:
        for note in source.notes:
            print(f"note: {source.name}: {note}")
    return 0


def _import_tables(
    chosen: argparse.Namespace, sources: list[Path], out: Path, asked: dict[str, Any]
) -> int:
    from sterling.commands.output.dataset_findings_lines import print_findings
    from sterling.data import check, import_table
    from sterling.data.tables.table_import import describe_labels

    how = {"obs": "", "action": ""} | asked
    made = import_table(
        sources,
        out,
        environment=chosen.environment,
        reference=tuple(chosen.reference) if chosen.reference else None,
        **how,
    )
    for line in describe_labels(made):
        print(line)
    print("; ".join(f"{ROLES[name]}: {asked[name]}" for name in ROLES if name in asked))
    notes = list(dict.fromkeys(note for source in made.facts.sources for note in source.notes))
    for note in notes:
        print(f"note: {note}")
    findings = [one for one in check(made) if one.kind != "assumed"]  # the notes above
    errors = print_findings(findings)
    counts = [f"{errors} errors", f"{len(findings) - errors} warnings"]
    counts += [f"{len(notes)} notes"] if notes else []
    print(f"{out}: {made.episodes} episodes, {made.rows} rows, hash {made.hash[:12]}: "
          f"{', '.join(counts)}")  # fmt: skip
    if errors:
        print(f"to repair: sterling data check {out} --fix REPAIRED")
    return int(errors > 0)
