"""What a notebook shows for a run: its summary, its learning curve, and a film if there is one."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path

VIDEO_TYPES = {".mp4": "video/mp4", ".gif": "image/gif"}
INLINE_BYTES = 20_000_000  # larger films are named, not shown: a notebook stores what it shows


def summary_html(lines: Sequence[tuple[str, str]], path: Path | None) -> str:
    """Return a table of ``lines`` (name, value), with ``curve.png`` and the newest film of the
    run's folder ``path``."""
    rows = "".join(
        f"<tr><td style='text-align:left;opacity:.6'>{html.escape(name)}</td>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in lines
    )
    parts = [f"<table>{rows}</table>"]
    if path is not None:
        if (curve := path / "curve.png").exists():
            parts.append(
                f"<img alt='learning curve' width='560' src='{_inline(curve, 'image/png')}'>"
            )
        films = [each for each in path.iterdir() if each.suffix in VIDEO_TYPES]
        parts += [video_tag(max(films, key=lambda each: each.stat().st_mtime))] if films else []
    return "<br>".join(parts)


def video_tag(path: Path) -> str:
    """Return HTML that shows a film (.mp4 or .gif) inline, or names it if it is too large."""
    name = html.escape(str(path))
    if path.stat().st_size > INLINE_BYTES:
        return f"<code>{name}</code> ({path.stat().st_size / 1e6:.0f} MB)"
    source = _inline(path, VIDEO_TYPES[path.suffix])
    if path.suffix == ".gif":
        return f"<img alt='{name}' width='400' src='{source}'>"
    return f"<video controls loop muted autoplay width='400' title='{name}' src='{source}'></video>"


def _inline(path: Path, kind: str) -> str:
    """Return a file's contents as a data URL."""
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
