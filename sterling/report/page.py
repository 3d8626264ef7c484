"""One HTML page that needs nothing else: no network, no script, pictures inside."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from sterling.report.facts import Table

STYLE = Path(__file__).with_name("page.css")


def page(title: str, parts: Sequence[str]) -> str:
    """The whole document."""
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n"
        "</head>\n<body>\n"
    )
    return head + "\n".join(part for part in parts if part) + "\n</body>\n</html>\n"


def section(title: str, *parts: str) -> str:
    """A heading and what stands under it; nothing where there is nothing to say."""
    inside = "\n".join(part for part in parts if part)
    return f"<h2>{escape(title)}</h2>\n{inside}" if inside else ""


def paragraph(words: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f"<p{_kind(kind)}>{escape(words)}</p>"


def bullets(words: Sequence[str], kind: str = "") -> str:
    """A list; nothing where it is empty."""
    inside = "\n".join(f"<li>{escape(one)}</li>" for one in words)
    return f"<ul{_kind(kind)}>\n{inside}\n</ul>" if words else ""


def cautions(words: Sequence[str]) -> str:
    """The box of warnings; nothing where there are none."""
    return f'<div class="cautions">\n<h2>To keep in mind</h2>\n{bullets(words)}\n</div>'[
        : None if words else 0
    ]


def table(made: Table) -> str:
    """A table; nothing where it has no row."""
    if not made.rows:
        return ""
    sides = made.sides.ljust(len(made.header))
    title = f"<h3>{escape(made.title)}</h3>\n" if made.title else ""
    head = _row(made.header, sides, "th")
    body = "\n".join(_row(row, sides, "td") for row in made.rows)
    inside = f"<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>"
    return f'{title}<div class="wide"><table>\n{inside}\n</table></div>'


def picture(svg: Path, caption: str) -> str:
    """A picture, drawn into the page, with what it shows in words."""
    data = base64.b64encode(svg.read_bytes()).decode("ascii")
    image = f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(caption)}">'
    return f"<figure>\n{image}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"


def escape(words: str) -> str:
    """Text as HTML."""
    return html.escape(words)


def _row(cells: Sequence[str], sides: str, tag: str) -> str:
    made = [
        f"<{tag}{_kind(side.strip())}>{escape(cell)}</{tag}>"
        for cell, side in zip(cells, sides, strict=True)
    ]
    return f"<tr>{''.join(made)}</tr>"


def _kind(name: str) -> str:
    return f' class="{name}"' if name else ""
