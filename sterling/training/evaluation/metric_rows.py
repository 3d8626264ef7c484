"""Columns of a row of metrics: from training episodes, and from evaluation episodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from sterling.report.episodes.episodes_file import is_level
from sterling.statistics.scores.headline import NAMED_REWARD
from sterling.training.agent import Agent


def training_columns(tally: Any, alive: Bool[np.ndarray, "seed"]) -> dict[str, Any]:
    """Return the columns of episodes that ended since the last row, from a source's ``tally``
    (None: the source counts no episodes)."""
    if tally is None:
        return {}
    episodes = np.maximum(tally.episodes, 1)
    live = alive & (tally.episodes > 0)
    means = {name: np.asarray(total) / episodes for name, total in tally.totals.items()}
    return {
        **{f"data/{name}": numbers_or_none(mean, live) for name, mean in means.items()},
        "data/episodes": tally.episodes.tolist(),
        "data/invalid": tally.invalid.tolist(),
    }


def answer_columns(
    worlds: Sequence[Any], columns: dict[str, Any], alive: Bool[np.ndarray, "seed"]
) -> dict[str, list[float | None]]:
    """Return the columns of answers in text worlds since the last row, beside and in place of the
    ``columns`` of their episodes."""
    found: dict[str, list[float | None]] = {}
    for world in (each for each in worlds if hasattr(each, "answer_columns")):
        found |= world.answer_columns(columns["data/return"], alive)
    return found


def failure_columns(failures: Iterable[str], worlds: Sequence[Any]) -> dict[str, Any]:
    """Return the seeds that failed, and a text on answers to which a text world gave no verdict,
    if there are any."""
    return {"failed": [int(seed) for seed in failures], **unjudged_answers(worlds)}


def unjudged_answers(worlds: Sequence[Any]) -> dict[str, str]:
    """Return how many answers have no verdict, of how many, and the first reason; nothing if all
    have one."""
    texts = (getattr(world, "unjudged_text", str)() for world in worlds)
    told = "; ".join(text for text in texts if text)
    return {"without_verdict": told} if told else {}


def answer_counts(worlds: Sequence[Any]) -> list[dict[str, Any]]:
    """Return what a checkpoint keeps of the answers in text worlds and of their verdicts."""
    return [world.counts_to_json() for world in worlds if hasattr(world, "counts_to_json")]


def restore_answer_counts(worlds: Sequence[Any], counts: Sequence[dict[str, Any]]) -> None:
    """Give text worlds the counts of a checkpoint; older checkpoints have none."""
    counting = [world for world in worlds if hasattr(world, "restore_counts")]
    for world, own in zip(counting, counts, strict=False):
        world.restore_counts(own)


def episode_means(name: str, episodes: np.ndarray) -> np.ndarray:
    """Return the means ``(seed,)`` of a column ``(seed, episode)`` of an evaluation. A named reward
    is NaN in scenes that it does not apply to, which do not count; NaN where none counts."""
    if not is_named_reward(name):
        return np.asarray(episodes.mean(1))
    counts = ~np.isnan(episodes)
    with np.errstate(invalid="ignore"):
        return np.where(counts, episodes, 0.0).sum(1) / counts.sum(1)


def is_named_reward(name: str) -> bool:
    """Whether a column of an evaluation is a named reward."""
    return name.startswith(NAMED_REWARD)


def evaluation_columns(
    episodes: dict[str, dict[str, np.ndarray]], here: str, alive: Bool[np.ndarray, "seed"]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the columns of an evaluation: all for the world ``here``, and the return for other
    worlds. Also return each seed's "return" here, and in all "worlds"."""
    means = {
        world: {
            name: numbers_or_none(episode_means(name, x), alive)
            for name, x in each.items()
            if name != "ended" and not is_level(name)
        }
        for world, each in episodes.items()
    }
    returns = {world: each["return"] for world, each in means.items()}
    row: dict[str, Any] = {f"evaluation/{name}": each for name, each in means[here].items()}
    if len(returns) > 1:
        row |= {f"evaluation/{world}/return": each for world, each in returns.items()}
    return row, {"return": returns[here], "worlds": returns}


def schedule_columns(agent: Agent, alive: Bool[np.ndarray, "seed"]) -> dict[str, Any]:
    """Return the columns of fields that have a schedule: their values in the last iteration."""
    found = {} if agent.schedules is None else agent.schedules.columns(agent.state)
    return {name: numbers_or_none(values, alive) for name, values in found.items()}


def numbers_or_none(
    values: Float[np.ndarray, "seed"], valid: Bool[np.ndarray, "seed"]
) -> list[float | None]:
    """Return JSON numbers; None for seeds that are not valid or not finite."""
    good = valid & np.isfinite(values)
    return [float(v) if ok else None for v, ok in zip(values, good, strict=True)]
