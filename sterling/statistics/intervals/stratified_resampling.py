"""The stratified bootstrap: whole runs are resampled, each task on its own (Efron 1979).

A draw is kept as *weights*, how often each run was drawn. Keys are whole numbers; a random stream
belongs to a key and a purpose, so two functions given one key draw independently, and equal inputs
give bit-equal answers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from sterling.statistics.intervals.aggregates import Aggregate
from sterling.statistics.scores.score_table import Sample
from sterling.types import Mistake

CHUNK = 2_000_000  # weights held at once: 16 MB of int64, whatever the number of draws


def random_generator(key: int, purpose: str, *rest: int) -> np.random.Generator:
    """Return a generator that depends on (key, purpose, rest) and on nothing else."""
    if key < 0:
        raise Mistake(f"a key is a whole number, 0 or above; got {key}")
    return np.random.default_rng([int(key), zlib.crc32(purpose.encode()), *rest])


def resample_weights(
    sample: Sample, draws: int, rng: np.random.Generator, shared: bool = False
) -> Iterator[Int[np.ndarray, "draw score"]]:
    """Yield weights of ``draws`` resamples, in chunks. ``shared``: all tasks draw the same runs."""
    total = sample.values.size
    chunk = max(CHUNK // total, 1)
    if shared and len(set(sample.counts)) > 1:
        raise Mistake("shared=True needs every run on every task")
    for start in range(0, draws, chunk):
        size = min(chunk, draws - start)
        places = _drawn_positions(sample, size, rng, shared)
        places += np.arange(size)[:, None] * total
        yield np.bincount(places.ravel(), minlength=size * total).reshape(size, total)


def _drawn_positions(
    sample: Sample, size: int, rng: np.random.Generator, shared: bool
) -> Int[np.ndarray, "draw score"]:
    """Return the drawn runs as positions in ``sample.values``."""
    starts = sample.starts
    if len(set(sample.counts)) == 1:
        tasks, n = sample.tasks, sample.n
        kind = np.uint8 if n <= 256 else np.int64
        drawn = rng.integers(0, n, (size, 1 if shared else tasks, n), dtype=kind)
        return (drawn + starts[:, None]).reshape(size, tasks * n)
    parts = [
        rng.integers(0, n, (size, n)) + start
        for n, start in zip(sample.counts, starts, strict=True)
    ]
    return np.concatenate(parts, axis=1)


def resample_statistic(
    sample: Sample,
    aggregate: Aggregate,
    draws: int,
    rng: np.random.Generator,
    shared: bool = False,
) -> Float[np.ndarray, "draw"]:
    """Return the statistic of each of ``draws`` resamples."""
    parts = [
        aggregate.weighted(sample, each) for each in resample_weights(sample, draws, rng, shared)
    ]
    return np.concatenate(parts)
