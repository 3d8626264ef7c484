"""``sterling data``: import, export, check, describe, make, record and relabel datasets."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sterling.commands import data_import, data_make, data_record, data_relabel
from sterling.commands.output.dataset_findings_lines import MAX_SHOWN, print_findings

if TYPE_CHECKING:
    from sterling.data import Dataset, Description, Finding

EXPLAINED = """\
A dataset is a folder written by Sterling, Minari, LeRobot or TensorFlow Datasets (RLDS), a
D4RL .hdf5, an OGBench .npz, or any .npz with observations, actions, rewards and
terminals. The format is detected from the content. Tables of steps (CSV, Parquet) are
imported by the names of their columns: sterling data import --help.

  sterling data import hopper.hdf5 data/hopper --environment Hopper-v5
  sterling data import log.csv --obs a,b --action u --reward r --episode id --out data/mine
  sterling data check data/hopper --fix data/hopper-repaired
  sterling data describe data/hopper-repaired --out hopper.png
  sterling data export data/hopper-repaired out/hopper-v0 --format minari
  sterling data make Hopper-v5 --quality medium-replay --size 200_000 --out data/hopper-replay
  sterling data record runs/hopper --episodes 100 --out data/recorded
  sterling data relabel data/hopper data/hopper-otr --rewards-from data/expert --best 1

Exit code 0; 1 if check finds errors, or a file is damaged; 2 for wrong use."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of ``sterling data``, and their options."""
    parser.epilog = EXPLAINED
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    kinds = parser.add_subparsers(dest="do", metavar="WHAT", required=True)

    word = "read files of any format, or tables, and join them into one dataset"
    data_import.add_options(kinds.add_parser("import", help=word))

    one = kinds.add_parser("export", help="write a dataset in another format")
    one.add_argument("file", type=Path, metavar="FILE", help="a dataset in any format")
    one.add_argument("out", type=Path, metavar="OUT", help="file or folder to write")
    one.add_argument("--format", required=True, help="minari, d4rl, npz or sterling")

    one = kinds.add_parser("check", help="find what silently ruins learning from a dataset")
    one.add_argument("file", type=Path, metavar="FILE", help="a dataset in any format")
    spaces = "report if the dataset's spaces are not those of this environment"
    one.add_argument("--environment", default="", metavar="ENV", help=spaces)
    cut = "the time limit that truncated the episodes (the environment's)"
    one.add_argument("--limit", type=int, metavar="STEPS", help=cut)
    one.add_argument("--fix", type=Path, metavar="OUT", help="write a repaired copy to OUT")
    every = f"print all findings, not only {MAX_SHOWN} of each kind"
    one.add_argument("--all", action="store_true", help=every)

    word = "print a dataset's quality and coverage, and which learners suit it"
    _add_describe_options(kinds.add_parser("describe", help=word))
    word = "make a dataset with trained agents or scripts"
    data_make.add_options(kinds.add_parser("make", help=word))
    word = "record a run's policies, or what you play with keyboard or gamepad"
    data_record.add_options(kinds.add_parser("record", help=word))
    word = "add rewards from demonstrations, or actions from an inverse dynamics model"
    data_relabel.add_options(kinds.add_parser("relabel", help=word))


def _add_describe_options(one: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling data describe``."""
    one.add_argument("file", type=Path, metavar="FILE", help="a dataset in any format")
    relative = "the dataset that coverage (SACo) is relative to"
    one.add_argument("--beside", type=Path, metavar="FILE", help=relative)
    one.add_argument(
        "--reference", nargs=2, type=float, metavar=("LOW", "HIGH"), help=data_import.REFERENCE_HELP
    )
    picture = "also draw a picture (.png, .svg or .pdf)"
    one.add_argument("--out", type=Path, metavar="PICTURE", help=picture)


def carry_out(chosen: argparse.Namespace) -> int:
    """Run the chosen subcommand of ``sterling data``."""
    parts: dict[str, Callable[[argparse.Namespace], int]] = {
        "import": data_import.carry_out,
        "export": _export,
        "check": _check,
        "describe": _describe,
        "make": data_make.carry_out,
        "record": data_record.carry_out,
        "relabel": data_relabel.carry_out,
    }
    return parts[chosen.do](chosen)


def _export(chosen: argparse.Namespace) -> int:
    from sterling.data import Dataset

    data = Dataset(chosen.file)
    data.save(chosen.out, chosen.format)
    print(f"{chosen.out}: {data.episodes} episodes, {data.rows} rows")
    return 0


def _check(chosen: argparse.Namespace) -> int:
    import sys

    from sterling.data import Dataset, check
    from sterling.data.formats import check_destination
    from sterling.types import Mistake

    if chosen.fix:
        check_destination(chosen.fix)
    try:
        data = Dataset(chosen.file)
    except Mistake as error:
        if not chosen.file.exists():
            raise
        print(f"error: file: {error}", file=sys.stderr)
        return 1
    findings = check(data, chosen.environment, chosen.limit)
    errors = print_findings(findings, chosen.all)
    count, notes = len(findings) - errors, sum(one.kind == "assumed" for one in findings)
    of_them = f", {notes} of them about what was assumed" if notes else ""
    print(f"{data.episodes} episodes, {data.rows} rows: {errors} errors, {count} warnings{of_them}")
    if chosen.fix:
        _repair(chosen, data, findings)
    return int(errors > 0)


def _repair(chosen: argparse.Namespace, data: Dataset, findings: Sequence[Finding]) -> None:
    """Write a repaired copy, and print each repair and what is left of the findings."""
    from sterling.data import check, repair_dataset
    from sterling.data.quality.dataset_repair import REPAIRED
    from sterling.report.text_tables import pluralise

    mended = repair_dataset(data, findings)
    mended.save(chosen.fix)
    for fix, count in Counter(one.fix for one in findings if one.fix).items():
        print(f"{REPAIRED} ({pluralise(count, 'finding')}): {fix}")
    again = check(mended, chosen.environment, chosen.limit)
    left = [one for one in again if f": {REPAIRED}: " not in one.message]
    if left:
        print("not repaired:")
    errors = print_findings(left, chosen.all)
    said = f"{errors} errors left, {len(left) - errors} warnings left"
    print(f"{chosen.fix}: {mended.episodes} episodes, {mended.rows} rows: {said}")


def _describe(chosen: argparse.Namespace) -> int:
    from sterling.data import Dataset, describe, recommend
    from sterling.system.atomic_files import check_writable, explain_write_errors
    from sterling.types import Mistake

    if chosen.out and chosen.out.suffix.lstrip(".") not in ("png", "svg", "pdf"):
        raise Mistake(f"Unknown type of picture: {chosen.out.name}. Use .png, .svg or .pdf.")
    if chosen.out:
        check_writable(chosen.out)
    data = Dataset(chosen.file)
    beside = Dataset(chosen.beside) if chosen.beside else None
    ends = tuple(chosen.reference) if chosen.reference else None
    found = describe(data, beside, ends)
    width = max(len(name) for name, _ in _description_lines(data, found))
    for name, text in _description_lines(data, found):
        print(f"{name:<{width}}  {text}")
    print("\nlearners to try first:")
    for advice in recommend(found):
        print(_wrap(f"  {advice}"))
    if chosen.out:
        from sterling.report.pictures.dataset_plot import draw_dataset

        with explain_write_errors(chosen.out):
            drawn = draw_dataset(data, found, chosen.out)
        print(drawn)
    return 0


def _description_lines(data: Dataset, found: Description) -> list[tuple[str, str]]:
    """Return the lines of a description: names and statistics."""
    from sterling.report.text_tables import format_number

    ends = "" if found.reference is None else f" (0 is {found.reference[0]:g}, 1 is "
    ends += "" if found.reference is None else f"{found.reference[1]:g})"
    coverage = "-" if found.coverage is None else f"{found.coverage:.2f}"
    return [
        ("environment", _environment_text(data)),
        ("episodes, rows", f"{data.episodes}, {data.rows}"),
        ("return", f"{found.returns}, best tenth {format_number(found.best)}"),
        ("length", f"{found.lengths}; {_percent(found.ended)} terminated, the rest truncated"),
        ("quality (TQ)", f"{found.quality}{ends}" if found.quality else "- (no reference scores)"),
        ("coverage (SACo)", f"{coverage}; {found.pairs} cells, {found.pairs / data.rows:.2f}/row"),
        ("upside", f"{format_number(found.upside)}, root mean square of returns above the mean"),
        ("commonest reward", f"{_percent(found.sparse)} of rows"),
        ("policy", f"at most {_optional_percent(found.policy)} random, at similar observations"),
        ("entropy", f"{found.entropy} nats a step" if found.entropy else "- (no log_prob)"),
        ("world", f"{_optional_percent(found.world)} of repeated pairs have other outcomes"),
        ("stitching", f"{found.crossing:.0%} of rows cross another episode; the best continuation "
         f"gains {found.gain:.0%} of the range"),
    ]  # fmt: skip


def _environment_text(data: Dataset) -> str:
    given = " ".join(f"--env {name}={value}" for name, value in data.facts.options.items())
    return f"{data.facts.environment or '-'} {given}".strip()


def _optional_percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _percent(share: float) -> str:
    """Return a share as a percentage, with enough decimals that only 1.0 is shown as 100%."""
    digits = 0
    while share < 1.0 and f"{share:.{digits}%}".startswith("100"):
        digits += 1
    return f"{share:.{digits}%}"


def _wrap(words: str) -> str:
    import textwrap

    return textwrap.fill(words, 100, subsequent_indent="    ", break_on_hyphens=False)
