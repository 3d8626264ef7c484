"""Write one self-contained HTML page: no network, no script, pictures embedded."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from sterling.report.run_caveats import TextTable

STYLE = Path(__file__).with_name("page.css")


def html_page(title: str, parts: Sequence[str]) -> str:
    """Return the whole document."""
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n"
        "</head>\n<body>\n"
    )
    return head + "\n".join(part for part in parts if part) + "\n</body>\n</html>\n"


def section(title: str, *parts: str) -> str:
    """Return a heading with its content; "" where there is no content."""
    inside = "\n".join(part for part in parts if part)
    return f"<h2>{escape(title)}</h2>\n{inside}" if inside else ""


def paragraph(words: str, kind: str = "") -> str:
    """Return a paragraph of plain text."""
    return f"<p{_class_attribute(kind)}>{escape(words)}</p>"


def bullet_list(words: Sequence[str], kind: str = "") -> str:
    """Return a bullet list; "" where it is empty."""
    inside = "\n".join(f"<li>{escape(one)}</li>" for one in words)
    return f"<ul{_class_attribute(kind)}>\n{inside}\n</ul>" if words else ""


def caution_box(words: Sequence[str]) -> str:
    """Return the box of warnings; "" where there are none."""
    return f'<div class="cautions">\n<h2>To keep in mind</h2>\n{bullet_list(words)}\n</div>'[
        : None if words else 0
    ]


def html_table(made: TextTable) -> str:
    """Return a table; "" where it has no rows."""
    if not made.rows:
        return ""
    sides = made.sides.ljust(len(made.header))
    title = f"<h3>{escape(made.title)}</h3>\n" if made.title else ""
    head = _table_row(made.header, sides, "th")
    body = "\n".join(_table_row(row, sides, "td") for row in made.rows)
    inside = f"<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>"
    return f'{title}<div class="wide"><table>\n{inside}\n</table></div>'


def html_picture(svg: Path, caption: str) -> str:
    """Return a picture embedded in the page, with its caption."""
    data = base64.b64encode(svg.read_bytes()).decode("ascii")
    image = f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(caption)}">'
    return f"<figure>\n{image}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"


def escape(words: str) -> str:
    """Escape text for HTML."""
    return html.escape(words)


def _table_row(cells: Sequence[str], sides: str, tag: str) -> str:
    made = [
        f"<{tag}{_class_attribute(side.strip())}>{escape(cell)}</{tag}>"
        for cell, side in zip(cells, sides, strict=True)
    ]
    return f"<tr>{''.join(made)}</tr>"


def _class_attribute(name: str) -> str:
    return f' class="{name}"' if name else ""
