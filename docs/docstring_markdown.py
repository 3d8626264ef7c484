"""Write the docstring of an algorithm as Markdown: prose as prose, equations as blocks of text."""

from __future__ import annotations

import itertools
import os
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "algorithms"  # the folder of the pages that are written
TOKEN = re.compile(
    r"(?::[a-z]+:)?(?P<ticks>`+)(?P<code>.+?)(?P=ticks)"  # ``code``, or a role: :mod:`name`
    r"|(?P<page>\b(?:docs|benchmarks)/[\w/-]+\.md\b)"
    r"|(?P<emphasis>(?<!\S)\*\w+\*(?!\S))"
    r"|(?P<mark>\*|(?<!\w)_|_(?!\w)|[\[\]]|<(?=[\w/!])|^[-+#>](?= )|(?<=^\d)[.)](?= ))",
    re.DOTALL | re.MULTILINE,
)
NEW_PARAGRAPH = re.compile(r"(?<=\S)\s(?=Evidence: )|(?<=\S)\n(?=Deviations\b)")


def docstring_markdown(text: str) -> str:
    """Return a docstring's paragraphs as prose and its indented lines as blocks of text.

    Names of pages become links with the page's title; marks that Markdown would read are escaped.
    """
    parts = [
        _block(list(lines)) if is_indented else _prose(list(lines))
        for is_indented, lines in itertools.groupby(text.strip("\n").splitlines(), _Indentation())
    ]
    return "\n\n".join(parts)


def page_title(page: Path) -> str:
    """Return the title of a page of Markdown: its first heading."""
    lines = page.read_text().splitlines()
    return next(line[2:].strip() for line in lines if line.startswith("# "))


class _Indentation:
    """Whether a line is indented; an empty line counts as the line before it."""

    def __init__(self) -> None:
        self.last = False

    def __call__(self, line: str) -> bool:
        self.last = line.startswith("    ") if line.strip() else self.last
        return self.last


def _block(lines: list[str]) -> str:
    text = textwrap.dedent("\n".join(lines)).strip("\n")
    return f"```text\n{text}\n```"


def _prose(lines: list[str]) -> str:
    return TOKEN.sub(_marked, NEW_PARAGRAPH.sub("\n\n", "\n".join(lines).strip("\n")))


def _marked(found: re.Match[str]) -> str:
    """Return code in single backticks, a page as a link, and any other mark escaped."""
    if found["code"]:
        return f"`{found['code']}`"
    if found["page"]:
        page = ROOT / found["page"]
        if not page.exists():
            return found["page"]
        return f"[{page_title(page)}]({os.path.relpath(page, FOLDER)})"
    return found["emphasis"] or f"\\{found['mark']}"
