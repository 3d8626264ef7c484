"""Build the documentation as static files: `make site`.

python docs/site/build_site.py [--out FOLDER]

The pages of docs/ and whatever files of the repository they link to are copied into a folder that
mirrors the repository, so that links work in the repository and on the site alike. Then MkDocs
builds it; a broken link or anchor ends the build.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
from docstring_markdown import page_title  # noqa: E402

LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)(#[^)\s]*)?(\))")
NOT_LOCAL = ("http://", "https://", "mailto:")
FILE_NAME = re.compile(r"\[`?[\w./-]+\.md`?\]\($")  # the beginning of a link that reads as its file
TABLE_ROW = re.compile(r"^\|.*`.*$", re.MULTILINE)
START = "docs/index.md"  # becomes the site's first page


def pages() -> list[Path]:
    """Return the pages that the site begins with: docs/ and the changelog."""
    return [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "CHANGELOG.md"]


def linked_files(page: Path) -> list[Path]:
    """Return the files of the repository that a page links to or shows."""
    found = []
    for _, target, _, _ in LINK.findall(without_code(page.read_text())):
        if target.startswith(NOT_LOCAL):
            continue
        file = (page.parent / target).resolve()
        if not file.exists():
            raise SystemExit(f"{page.relative_to(ROOT)} links to {target}, which does not exist")
        found += sorted(file.glob("*.py")) if file.is_dir() else [file]
    return found


def without_code(text: str) -> str:
    """Return a page without its fenced blocks, in which brackets are not links."""
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def all_files() -> set[Path]:
    """Return every file of the site: its pages, what they link to, what that links to..."""
    todo, found = pages(), set()
    while todo:
        file = todo.pop()
        if file in found or not file.is_relative_to(ROOT):
            continue
        found.add(file)
        if file.suffix == ".md":
            todo += linked_files(file)
    return found


def stage(folder: Path) -> None:
    """Copy the site's files into ``folder`` as they lie in the repository; the start page lies
    above them."""
    for file in sorted(all_files()):
        where = folder / file.relative_to(ROOT)
        where.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, where)
        if file.suffix == ".py":  # a server would offer a download
            shutil.copyfile(file, where.with_name(f"{where.name}.txt"))
    titles = {page.resolve(): page_title(page) for page in folder.rglob("*.md")}
    for page in titles:
        page.write_text(_adapted(page, titles))
    start = folder / START
    (folder / "index.md").write_text(LINK.sub(_from_above, start.read_text()))
    start.unlink()
    shutil.copyfile(HERE / "site.css", folder / "site.css")


def configuration() -> str:
    """Return MkDocs's configuration, with the pages of all algorithms in its navigation."""
    names = sorted(page.name for page in (ROOT / "docs" / "algorithms").glob("*.md"))
    entries = "\n      ".join(f"- {name[:-3]}: docs/algorithms/{name}" for name in names)
    text = (HERE / "mkdocs.yml").read_text()
    return text.replace("REPOSITORY", str(ROOT)).replace("      ALGORITHMS\n", f"      {entries}\n")


def _adapted(page: Path, titles: dict[Path, str]) -> str:
    """Return a page whose links to programs lead to their text, and to folders to their listing;
    a link that reads as the name of a page's file reads as the page's title instead."""

    def changed(match: re.Match[str]) -> str:
        head, target, anchor, end = match.groups()
        title = titles.get((page.parent / target).resolve())
        if title and FILE_NAME.match(head):
            head = f"[{title}]("
        is_program = target.endswith(".py") and not target.startswith(NOT_LOCAL)
        return f"{head}{target}{'.txt' if is_program else ''}{anchor or ''}{end}"

    return TABLE_ROW.sub(_without_escapes, LINK.sub(changed, page.read_text()))


def _without_escapes(row: re.Match[str]) -> str:
    """Return a table's row whose code has | for \\|: MkDocs, unlike GitHub, shows the backslash."""
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0])


def _from_above(match: re.Match[str]) -> str:
    """Return a link of docs/index.md as seen from the folder above."""
    head, target, anchor, end = match.groups()
    if not target.startswith(NOT_LOCAL):
        target = target[3:] if target.startswith("../") else f"docs/{target}"
    return f"{head}{target}{anchor or ''}{end}"


def main() -> None:
    """Build the site."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as staging:
        stage(Path(staging) / "pages")
        config = Path(staging) / "mkdocs.yml"
        config.write_text(configuration())
        words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
        quiet = {"NO_MKDOCS_2_WARNING": "1"}  # about a later major version
        subprocess.run(
            [*words, "--config-file", str(config), "--site-dir", str(chosen.out.resolve())],
            check=True,
            env={**os.environ, **quiet},
        )
    print(chosen.out / "index.html")


if __name__ == "__main__":
    main()
