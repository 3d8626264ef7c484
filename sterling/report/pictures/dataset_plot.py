"""Draw a dataset: returns, the mean return of its best episodes, lengths, actions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sterling.report.pictures import plot_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sterling.data import Dataset, Description


def draw_dataset(data: Dataset, found: Description, path: Path) -> Path:
    """Draw the histograms of a dataset into ``path``; return the path written."""
    with plot_style.use_style():
        figure = plot_style.new_figure(7.0, 4.8, 0.08)
        (returns, best), (lengths, actions) = figure.subplots(2, 2)
        _draw_returns(returns, data, found)
        _draw_best(best, data, found)
        _draw_lengths(lengths, data)
        _draw_actions(actions, data)
        path.parent.mkdir(parents=True, exist_ok=True)
        return plot_style.save_figure(figure, path.with_suffix(""), [path.suffix.lstrip(".")])[0]


def _draw_returns(axes: Axes, data: Dataset, found: Description) -> None:
    axes.hist(data.returns, bins=40, color=plot_style.BLUE, alpha=0.75, lw=0)
    mean = found.returns
    if mean.low is not None and mean.high is not None:
        axes.axvspan(mean.low, mean.high, color=plot_style.ORANGE, alpha=0.3, lw=0)
    axes.axvline(mean.value, color=plot_style.ORANGE, lw=1.5)
    axes.set(title=f"Returns, mean {mean}", xlabel="return", ylabel="episodes")
    plot_style.add_grid(axes)


def _draw_best(axes: Axes, data: Dataset, found: Description) -> None:
    """Draw the mean return of the best x % of the episodes: what %BC imitates."""
    ranked = np.sort(data.returns)[::-1]
    share = 100 * np.arange(1, len(ranked) + 1) / len(ranked)
    axes.plot(share, np.cumsum(ranked) / np.arange(1, len(ranked) + 1), color=plot_style.BLUE, lw=2)
    if found.reference is not None:
        for value, name in zip(found.reference, ("0", "1"), strict=True):
            axes.axhline(value, color=plot_style.FAINT, lw=0.8, ls="--")
            axes.text(
                100, value, f"reference {name}", ha="right", va="bottom", color=plot_style.FAINT
            )
    axes.set(title="The best share of the episodes", xlabel="best % of episodes")
    axes.set_ylabel("mean return")
    axes.set_xlim(0, 100)
    plot_style.add_grid(axes)


def _draw_lengths(axes: Axes, data: Dataset) -> None:
    from matplotlib.ticker import MaxNLocator

    parts = [data.lengths[data.ended], data.lengths[~data.ended]]
    looks: dict[str, Any] = {
        "color": [plot_style.BLUE, plot_style.COLOURS[4]],
        "stacked": True,
        "lw": 0,
    }
    spread = data.lengths.min() < data.lengths.max()
    axes.hist(parts, bins=40 if spread else 1, label=["ended", "cut"], **looks)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set(title="Lengths", xlabel="steps", ylabel="episodes")
    axes.legend()
    plot_style.add_grid(axes)


def _draw_actions(axes: Axes, data: Dataset) -> None:
    """Draw how often each action was taken, or the distribution of each action component."""
    rows = np.linspace(0, data.rows - 1, min(data.rows, 20_000), dtype=int)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(data.transitions(rows).action)]
    flat = np.concatenate([leaf.reshape(len(rows), -1) for leaf in leaves], 1)[:, :32]
    if all(leaf.dtype.kind in "iub" for leaf in leaves) and flat.shape[1] == 1:
        choices, counts = np.unique(flat[:, 0], return_counts=True)
        axes.bar(choices, 100 * counts / counts.sum(), color=plot_style.BLUE)
        axes.set(title="Actions", xlabel="choice", ylabel="% of rows")
        axes.set_xticks(choices)
    else:
        looks: dict[str, Any] = {"showfliers": False, "patch_artist": True, "widths": 0.6}
        boxes = axes.boxplot(flat, whis=(5, 95), medianprops={"color": plot_style.ORANGE}, **looks)
        for box in boxes["boxes"]:
            box.set(facecolor=plot_style.BLUE, alpha=0.6, lw=0)
        axes.set(title="Actions (5 to 95 %)", xlabel="component", ylabel="in agents' units")
    plot_style.add_grid(axes)
