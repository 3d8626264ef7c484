"""``sterling data import | export | check | describe | make | relabel``: experience on disk."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sterling.commands import data_make, data_relabel

if TYPE_CHECKING:
    from sterling.data import Dataset, Description

EXPLAINED = """\
A dataset is a folder of Sterling's or Minari's, a D4RL .hdf5, an OGBench .npz or any .npz
with observations, actions, rewards and terminals; which it is is seen by looking at it.

  sterling data import hopper.hdf5 data/hopper --environment Hopper-v5
  sterling data check data/hopper --fix data/hopper-mended
  sterling data describe data/hopper-mended --out hopper.png
  sterling data export data/hopper-mended out/hopper-v0 --format minari
  sterling data make Hopper-v5 --quality medium-replay --size 200_000 --out data/hopper-replay
  sterling data relabel data/hopper data/hopper-otr --rewards-from data/expert --best 1

Exit code 0; 1 if check finds errors, or a file is damaged; 2 for wrong use."""
ENDS = "returns that count as 0 and as 1"
SHOWN = 5  # findings of one kind that are printed


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    parser.description, parser.epilog = (
        "make, convert, check, describe and relabel logged experience",
        EXPLAINED,
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    kinds = parser.add_subparsers(dest="do", metavar="WHAT", required=True)

    word = "read files of any format, end to end, into a dataset"
    _import_options(kinds.add_parser("import", help=word))

    one = kinds.add_parser("export", help="write a dataset for others")
    one.add_argument("file", type=Path, metavar="FILE", help="a dataset in any format")
    one.add_argument("out", type=Path, metavar="OUT", help="file or folder to write")
    one.add_argument("--format", required=True, help="minari, d4rl, npz or sterling")

    one = kinds.add_parser("check", help="find what silently ruins learning from a file")
    one.add_argument("file", type=Path, metavar="FILE", help="a dataset in any format")
    one.add_argument("--environment", default="", metavar="ENV", help="its spaces must be ENV's")
    one.add_argument("--limit", type=int, metavar="STEPS", help="length at which episodes were cut")
    one.add_argument("--fix", type=Path, metavar="OUT", help="write a repaired copy")
    one.add_argument("--all", action="store_true", help=f"print more than {SHOWN} of a kind")

    one = kinds.add_parser("describe", help="what it is like, and which learners suit it")
    one.add_argument("file", type=Path, metavar="FILE", help="a dataset in any format")
    relative = "dataset that coverage (SACo) is relative to"
    one.add_argument("--beside", type=Path, metavar="FILE", help=relative)
    one.add_argument("--reference", nargs=2, type=float, metavar=("LOW", "HIGH"), help=ENDS)
    one.add_argument("--out", type=Path, metavar="PICTURE", help="draw it (.png, .svg or .pdf)")

    data_make.options(kinds.add_parser("make", help="a new one, by our own agents or by scripts"))
    word = "rewards from demonstrations, or actions from a model of the world"
    data_relabel.options(kinds.add_parser("relabel", help=word))


def _import_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("sources", nargs="+", type=Path, metavar="SOURCE", help="files or folders")
    one.add_argument("out", type=Path, metavar="OUT", help="folder to write")
    one.add_argument("--format", default="", help="of the sources (seen by looking at them)")
    one.add_argument("--environment", default="", metavar="ENV", help="whose spaces they have")
    one.add_argument("--reference", nargs=2, type=float, metavar=("LOW", "HIGH"), help=ENDS)
    cut = "cut flat files after so many steps, where they do not say"
    one.add_argument("--limit", type=int, metavar="STEPS", help=cut)
    word = "take a file whose numbers are not those that its hash is of"
    one.add_argument("--changed", action="store_true", help=word)


def carry_out(chosen: argparse.Namespace) -> int:
    """Do it."""
    parts: dict[str, Callable[[argparse.Namespace], int]] = {
        "import": _import,
        "export": _export,
        "check": _check,
        "describe": _describe,
        "make": data_make.carry_out,
        "relabel": data_relabel.carry_out,
    }
    return parts[chosen.do](chosen)


def _import(chosen: argparse.Namespace) -> int:
    from sterling.data import formats

    made = formats.convert(
        chosen.sources,
        chosen.out,
        format=chosen.format,
        environment=chosen.environment,
        reference=tuple(chosen.reference) if chosen.reference else None,
        limit=chosen.limit,
        changed=chosen.changed,
    )
    print(f"{chosen.out}: {made.episodes} episodes, {made.rows} rows, hash {made.hash[:12]}")
    for source in made.facts.sources:
        for note in source.notes:
            print(f"note: {source.name}: {note}")
    return 0


def _export(chosen: argparse.Namespace) -> int:
    from sterling.data import Dataset

    data = Dataset(chosen.file)
    data.save(chosen.out, chosen.format)
    print(f"{chosen.out}: {data.episodes} episodes, {data.rows} rows")
    return 0


def _check(chosen: argparse.Namespace) -> int:
    import sys

    from sterling.data import Dataset, check, repaired
    from sterling.data.formats import check_place
    from sterling.types import Mistake

    if chosen.fix:
        check_place(chosen.fix)
    try:
        data = Dataset(chosen.file)
    except Mistake as error:
        if not chosen.file.exists():
            raise
        print(f"error: file: {error}", file=sys.stderr)
        return 1
    findings = check(data, chosen.environment, chosen.limit)
    shown: dict[tuple[str, str], int] = {}
    for one in findings:
        kind = (one.severity, one.kind)
        shown[kind] = shown.get(kind, 0) + 1
        if shown[kind] <= SHOWN or chosen.all:
            print(one)
    for (severity, word), count in shown.items():
        if count > SHOWN and not chosen.all:
            print(f"{severity}: {word}: {count - SHOWN} more; --all prints them")
    errors = sum(one.severity == "error" for one in findings)
    count = len(findings) - errors
    print(f"{data.episodes} episodes, {data.rows} rows: {errors} errors, {count} warnings")
    if chosen.fix:
        mended = repaired(data, findings)
        mended.save(chosen.fix)
        left = [one for one in check(mended, chosen.environment, chosen.limit)]
        hard = sum(one.severity == "error" for one in left)
        print(f"{chosen.fix}: {mended.episodes} episodes, {mended.rows} rows: {hard} errors left")
    return int(errors > 0)


def _describe(chosen: argparse.Namespace) -> int:
    from sterling.data import Dataset, describe, recommend
    from sterling.disk import try_place, writing
    from sterling.types import Mistake

    if chosen.out and chosen.out.suffix.lstrip(".") not in ("png", "svg", "pdf"):
        raise Mistake(f"a picture ends in .png, .svg or .pdf; got {chosen.out.name}")
    if chosen.out:
        try_place(chosen.out)
    data = Dataset(chosen.file)
    beside = Dataset(chosen.beside) if chosen.beside else None
    ends = tuple(chosen.reference) if chosen.reference else None
    found = describe(data, beside, ends)
    width = max(len(name) for name, _ in _lines(data, found))
    for name, said in _lines(data, found):
        print(f"{name:<{width}}  {said}")
    print("\nlearners to begin with:")
    for advice in recommend(found):
        print(_wrapped(f"  {advice}"))
    if chosen.out:
        from sterling.report.dataset import draw

        with writing(chosen.out):
            drawn = draw(data, found, chosen.out)
        print(drawn)
    return 0


def _lines(data: Dataset, found: Description) -> list[tuple[str, str]]:
    """Names and figures."""
    from sterling.report.text import number

    ends = "" if found.reference is None else f" (0 is {found.reference[0]:g}, 1 is "
    ends += "" if found.reference is None else f"{found.reference[1]:g})"
    coverage = "-" if found.coverage is None else f"{found.coverage:.2f}"
    return [
        ("environment", _environment(data)),
        ("episodes, rows", f"{data.episodes}, {data.rows}"),
        ("return", f"{found.returns}, best tenth {number(found.best)}"),
        ("length", f"{found.lengths}; {_percent(found.ended)} ended, the rest were cut"),
        ("quality (TQ)", f"{found.quality}{ends}" if found.quality else "- (no reference scores)"),
        ("coverage (SACo)", f"{coverage}; {found.pairs} cells, {found.pairs / data.rows:.2f}/row"),
        ("upside", f"{number(found.upside)}, root mean square of what is above the mean"),
        ("commonest reward", f"{_percent(found.sparse)} of rows"),
        ("policy", f"{_share(found.policy)} random at most, at like observations"),
        ("entropy", f"{found.entropy} nats a step" if found.entropy else "- (no log_prob)"),
        ("world", f"{_share(found.world)} of repeated pairs differ"),
        ("stitching", f"{found.crossing:.0%} of rows meet another episode; the best continuation "
         f"brings {found.gain:.0%} of the range more"),
    ]  # fmt: skip


def _environment(data: Dataset) -> str:
    given = " ".join(f"--env {name}={value}" for name, value in data.facts.options.items())
    return f"{data.facts.environment or '-'} {given}".strip()


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _percent(share: float) -> str:
    """A share in per cent, with so many decimals that only all of it is 100 %."""
    digits = 0
    while share < 1.0 and f"{share:.{digits}%}".startswith("100"):
        digits += 1
    return f"{share:.{digits}%}"


def _wrapped(words: str) -> str:
    import textwrap

    return textwrap.fill(words, 100, subsequent_indent="    ", break_on_hyphens=False)
