"""One style for every picture: colour-blind safe, light, small enough for a column of a paper.

Pictures are ``Figure`` objects (no pyplot: no display, no global state) and are drawn inside ``with
use_style():``, which sets fonts and lines only for the block.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito 2008, without the yellow that vanishes on white; most distinct in this order
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
BLUE, ORANGE, BLACK = COLOURS[0], COLOURS[1], "#000000"
INK, FAINT = "#222222", "#8a8a8a"
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)))  # when the colours are used up
FORMATS = ("png", "svg", "pdf")
PAGE_WIDTH = 7.0  # inches: the text of a page, which the pictures of a report fill
INTERVAL_ROOM = 0.25  # share of the curves' range that intervals may add to the axis on either side
MATPLOTLIB_SETTINGS: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.fonttype": "path",  # the same picture on every machine
    "svg.hashsalt": "sterling",  # equal pictures are equal files
    "pdf.fonttype": 42,  # text that journals accept
}


def import_matplotlib() -> None:
    """Import all of Matplotlib that a picture needs, which takes a third of a second."""
    import matplotlib.backends.backend_agg
    import matplotlib.figure
    import matplotlib.layout_engine
    import matplotlib.ticker  # noqa: F401


@contextlib.contextmanager
def use_style() -> Iterator[None]:
    """Context manager that applies the style."""
    import matplotlib

    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):  # type: ignore[arg-type]
        yield


def new_figure(width: float, height: float, between: float = 0.04) -> Figure:
    """Return an empty figure of a size in inches; ``between``: space between panels."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=between))


def palette(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return a colour for every label, in the order given, with dashes once colours are used up."""
    unique = list(dict.fromkeys(labels))
    return {
        label: {
            "color": COLOURS[at % len(COLOURS)],
            "linestyle": DASHES[at // len(COLOURS) % len(DASHES)],
        }
        for at, label in enumerate(unique)
    }


def save_figure(picture: Figure, stem: Path, formats: Sequence[str] | None = None) -> list[Path]:
    """Write a figure as ``stem.png``, ``stem.svg`` and ``stem.pdf``; return the paths."""
    picture.draw_without_rendering()
    picture.set_layout_engine("none")  # keep the computed margins for every format
    made = []
    for kind in formats or FORMATS:
        path = stem.with_name(f"{stem.name}.{kind}")
        undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
        picture.savefig(path, dpi=160, metadata=undated)
        made.append(path)
    return made


def format_steps_axis(axes: Axes) -> None:
    """Format the x axis as environment steps: 200k, 1M."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlim(left=0)


def limit_axis(axes: Axes, values: Sequence[float] | Float[np.ndarray, "value"]) -> bool:
    """Let the ``values`` of curves, and not their intervals, determine the axis of returns; return
    whether an interval is cut."""
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)]
    if not known.size:
        return False
    low, high = float(known.min()), float(known.max())
    room = INTERVAL_ROOM * ((high - low) or abs(high) or 1.0)
    least, most = sorted(axes.dataLim.intervaly)
    bottom, top = max(least, low - room), min(most, high + room)
    margin = 0.04 * ((top - bottom) or abs(top) or 1.0)
    axes.set_ylim(bottom - margin, top + margin)
    return bool(least < bottom - margin or most > top + margin)


def add_grid(axes: Axes, axis: Literal["x", "y"] = "y") -> None:
    """Add faint grid lines behind everything."""
    axes.grid(axis=axis, lw=0.5, alpha=0.35)
    axes.set_axisbelow(True)


def draw_end_labels(
    axes: Axes, ends: dict[str, float], looks: dict[str, dict[str, Any]], height: float
) -> None:
    """Write each label in its colour right of the axes, at its curve's end, without overlaps.

    ``ends``: label -> y in data units; ``height`` of the axes in inches, approximately.
    """
    low, high = axes.get_ylim()
    places = {label: (y - low) / ((high - low) or 1.0) for label, y in ends.items()}
    gap = 10.5 / 72 / height
    for label, place in spread_out(places, gap).items():
        axes.text(
            *(1.02, place, label),
            transform=axes.transAxes,
            color=looks[label]["color"],
            va="center",
            fontsize=8.5,
            fontweight="bold",
        )


def spread_out(places: dict[str, float], gap: float) -> dict[str, float]:
    """Move places on a line from 0 to 1 as little as needed to lie ``gap`` from each other."""
    order = sorted(places, key=lambda name: places[name])
    groups = [[places[name], 1] for name in order]  # centre, members: neighbours that touch merge
    at = 0
    while at + 1 < len(groups):
        (low, below), (high, above) = groups[at], groups[at + 1]
        if high - low >= gap * (below + above) / 2:
            at += 1
            continue
        merged = (low * below + high * above) / (below + above)
        groups[at : at + 2] = [[merged, below + above]]
        at = max(at - 1, 0)
    found = [centre + gap * (k - (n - 1) / 2) for centre, n in groups for k in range(int(n))]
    return dict(zip(order, found, strict=True))
