"""Write evaluation episodes as one HTML page: rewards, actions, channels and films."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from jaxtyping import Num

from sterling.lookup.user_imports import short_name
from sterling.report import html_page
from sterling.report.episodes.episode_text import (
    MOST_CHOICES,
    MOST_TRACES,
    action_counts,
    end_text,
    episode_rows,
)
from sterling.report.episodes.episodes_file import EpisodeId, EpisodeSteps, EvaluatedEpisodes
from sterling.report.run_caveats import TextTable
from sterling.report.text_tables import format_number, pluralise
from sterling.system.atomic_files import explain_write_errors
from sterling.system.mistake import Mistake

WIDTH, HEIGHT = 640, 70  # pixels of a picture over time
MOST_POINTS = 1280  # points of a line; longer episodes are averaged
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b0559b", "#9a7500", "#3a9bd9", "#7b4bb5", "#555555")


def write_page(
    path: Path,
    config: dict[str, Any],
    made: EvaluatedEpisodes,
    groups: Sequence[tuple[str, list[EpisodeId]]],
    films: dict[EpisodeId, Path],
) -> Path:
    """Write the page and return its path. Films are linked, not copied: the page finds them while
    both stay where they are."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise Mistake(f"a page is an .html file; got {path.name!r}")
    title = f"{short_name(config['algorithm'])} on {made.facts['environment']}"
    parts = [f"<h1>{html_page.escape(title)}</h1>"]
    whose = "the final policies" if made.facts.get("final") else "the latest evaluation"
    parts.append(html_page.paragraph(f"Evaluation episodes of {whose}.", "faint"))
    for name, ids in groups:
        parts.append(html_page.section(name.capitalize(), html_page.html_table(_table(made, ids))))
    for which in dict.fromkeys(which for _, ids in groups for which in ids):
        parts.append(_episode_section(made, which, _relative(films.get(which), path)))
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(html_page.html_page(title, parts), encoding="utf-8")
    return path


def _table(made: EvaluatedEpisodes, ids: list[EpisodeId]) -> TextTable:
    header, rows = episode_rows(made, ids)
    return TextTable(header, rows, sides="r" * (len(header) - 1) + " ")


def _episode_section(made: EvaluatedEpisodes, which: EpisodeId, film: str) -> str:
    steps = made.steps.get(which)
    title = (
        f"Seed {which[0]}, episode {which[1]}: return {format_number(made.value('return', which))}"
    )
    facts = f"{pluralise(round(made.value('length', which)), 'step')}, {end_text(made, which)}; "
    parts = [html_page.paragraph(f"{facts}starts by {made.start_text(which)}", "faint")]
    if film:
        parts.append(f'<video src="{html_page.escape(film)}" controls muted width="400"></video>')
    if steps is None:
        parts.append(html_page.paragraph("Its steps were not recorded."))
    else:
        parts += _pictures(steps)
    return html_page.section(title, *parts)


def _pictures(steps: EpisodeSteps) -> list[str]:
    parts = [_figure("reward", steps.reward[:, None])]
    parts += [_figure(name, x.reshape(len(x), -1)) for name, x in steps.channels.items()]
    if steps.action.dtype.kind == "f":
        parts.append(_figure("action", steps.action.reshape(len(steps.action), -1)))
    else:
        total = len(steps.action)
        counts = sorted(action_counts(steps.action), key=lambda pair: -pair[1])[:MOST_CHOICES]
        rows = [[name, f"{count:,}", f"{count / total:.0%}"] for name, count in counts]
        parts.append(
            html_page.html_table(TextTable(["action", "steps", "share"], rows, sides="rrr"))
        )
    return parts + [
        _figure(f"observation {name}".strip(), x.reshape(len(x), -1))
        for name, x in steps.obs.items()
    ]


def _figure(name: str, values: Num[np.ndarray, "step part"]) -> str:
    """Return a picture of an array's numbers over time, one line each."""
    shown = values[:, :MOST_TRACES].astype(np.float64)
    low, high = float(np.nanmin(shown)), float(np.nanmax(shown))
    lines = [_polyline(shown[:, at], low, high, COLOURS[at]) for at in range(shown.shape[1])]
    said = f"{name}: {format_number(low)} to {format_number(high)}"
    if values.shape[1] > MOST_TRACES:
        said += f" (the first {MOST_TRACES} of {values.shape[1]} numbers)"
    elif values.shape[1] > 1:
        said += f" ({values.shape[1]} numbers)"
    picture = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
    picture += f'aria-label="{html_page.escape(said)}">{"".join(lines)}</svg>'
    return f"<figure>{picture}<figcaption>{html_page.escape(said)}</figcaption></figure>"


def _polyline(values: np.ndarray, low: float, high: float, colour: str) -> str:
    parts = np.array_split(values, min(MOST_POINTS, len(values)))
    means = np.nan_to_num(np.array([part.mean() for part in parts]))
    span = high - low or 1.0
    x = np.linspace(2, WIDTH - 2, len(means)) if len(means) > 1 else np.array([WIDTH / 2])
    y = HEIGHT - 4 - (means - low) / span * (HEIGHT - 8)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.2"/>'


def _relative(film: Path | None, page: Path) -> str:
    """Return the address of a film for the page; "" for none."""
    return "" if film is None else quote(os.path.relpath(film, page.parent))
