"""Show evaluation episodes as text: a table, and each episode's rewards, actions and channels."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Num

from sterling.report.episodes.episodes_file import EpisodeId, EpisodeSteps, EvaluatedEpisodes
from sterling.report.text_tables import format_number, pluralise, text_table

MARKS = "▁▂▃▄▅▆▇█"
WIDTH = 60  # marks in a line over time
MOST_CHOICES = 12  # rows of the histogram of actions
MOST_TRACES = 8  # lines over time of one array, such as an observation with so many numbers


def end_text(made: EvaluatedEpisodes, which: EpisodeId) -> str:
    """Return how an episode ended. Only its last step tells a time limit from a termination; where
    that was not recorded, both are named."""
    if "ended" in made.columns and not made.value("ended", which):
        return "had not ended: cut at the evaluation's limit"
    steps = made.steps.get(which)
    if steps is None or len(steps.reward) < made.value("length", which):
        return "terminated or cut by its time limit: steps not recorded"
    return "terminated" if steps.discount[-1] == 0 else "cut by its time limit"


def episode_rows(
    made: EvaluatedEpisodes, chosen: list[EpisodeId]
) -> tuple[list[str], list[list[str]]]:
    """Return a header and one row per episode: seed, number, return, length, channels, its end."""
    header = ["seed", "episode", "return", "length", *made.channels, "end"]
    rows = [
        [
            *(str(which[0]), str(which[1])),
            *(format_number(made.value("return", which)), f"{made.value('length', which):,.0f}"),
            *(format_number(made.value(name, which)) for name in made.channels),
            end_text(made, which),
        ]
        for which in chosen
    ]
    return header, rows


def episodes_table(made: EvaluatedEpisodes, chosen: list[EpisodeId]) -> str:
    """Return the same as text."""
    header, rows = episode_rows(made, chosen)
    return text_table(header, rows, "r" * (len(header) - 1) + "l")


def episode_text(made: EvaluatedEpisodes, which: EpisodeId) -> str:
    """Return one episode's lines: how it began and went. Actions that are choices are counted;
    others are shown over time."""
    seed, number = which
    title = f"seed {seed}, episode {number}: return {format_number(made.value('return', which))}, "
    title += f"{pluralise(round(made.value('length', which)), 'step')}, {end_text(made, which)}"
    lines = [title, f"  starts   {made.start_text(which)}"]
    steps = made.steps.get(which)
    if steps is None:
        return "\n".join([*lines, "  its steps were not recorded"])
    if len(steps.reward) < made.value("length", which):
        lines.append(f"  the first {len(steps.reward):,} steps were recorded")
    lines += _trace_lines("reward", steps.reward[:, None])
    for name, values in steps.channels.items():
        lines += _trace_lines(name, values.reshape(len(values), -1))
    lines += _action_lines(steps)
    for name, values in steps.obs.items():
        lines += _trace_lines(f"obs {name}".strip(), values.reshape(len(values), -1))
    return "\n".join(lines)


def sparkline(values: Float[np.ndarray, "step"], width: int = WIDTH) -> str:
    """Return up to ``width`` marks, each as high as the mean of its share of the values."""
    parts = np.array_split(np.asarray(values, np.float64), min(width, len(values)))
    means = np.array([part.mean() for part in parts])
    low, high = np.nanmin(means), np.nanmax(means)
    if not high > low:
        return MARKS[3] * len(means)
    level = np.nan_to_num((means - low) / (high - low))
    return "".join(MARKS[int(share * (len(MARKS) - 1) + 0.5)] for share in level)


def action_counts(action: Num[np.ndarray, "step ..."]) -> list[tuple[str, int]]:
    """Return how often each choice (or combination of choices) was taken, in order."""
    found, counts = np.unique(action.reshape(len(action), -1), axis=0, return_counts=True)
    names = [",".join(str(int(part)) for part in row) for row in found]
    return list(zip(names, (int(count) for count in counts), strict=True))


def _action_lines(steps: EpisodeSteps) -> list[str]:
    if steps.action.dtype.kind == "f":
        return _trace_lines("action", steps.action.reshape(len(steps.action), -1))
    counts = action_counts(steps.action)
    most, total = max(count for _, count in counts), len(steps.action)
    shown = sorted(counts, key=lambda pair: -pair[1])[:MOST_CHOICES]
    kept = [pair for pair in counts if pair in shown]
    wide = max(len(f"action {name}") for name, _ in kept)
    lines = [
        f"  {f'action {name}':<{wide}}  {count / total:4.0%}  "
        f"{'█' * max(1, round(count / most * WIDTH / 2))}"
        for name, count in kept
    ]
    rest = len(counts) - len(kept)
    return lines + ([f"  and {pluralise(rest, 'other action')}"] if rest else [])


def _trace_lines(name: str, values: Num[np.ndarray, "step part"]) -> list[str]:
    """Return one line over time per column, with its lowest, mean and highest value."""
    lines = []
    for at in range(min(values.shape[1], MOST_TRACES)):
        own = values[:, at].astype(np.float64)
        label = name if values.shape[1] == 1 else f"{name} {at}"
        low, mean, high = (format_number(float(x)) for x in (own.min(), own.mean(), own.max()))
        lines.append(f"  {label:<9}{sparkline(own)}  {low} to {high}, mean {mean}")
    if values.shape[1] > MOST_TRACES:
        lines.append(f"  and {values.shape[1] - MOST_TRACES} more numbers of {name}")
    return lines
