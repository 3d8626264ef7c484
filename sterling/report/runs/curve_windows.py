"""Average a seed's returns over equal windows of steps, because single episodes are noisy."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

CURVE_WINDOWS = 50  # number of windows that a curve is averaged over


def window_means(
    steps: Float[np.ndarray, "row"],
    values: Float[np.ndarray, "row"],
    axis: Float[np.ndarray, "time"],
    end: float,
) -> Float[np.ndarray, "time"]:
    """Return the mean of each window that ends at ``axis``, from the first one with a value up to
    that of ``end``.

    Windows without a value are interpolated; after the last value they count as that one.
    """
    at = np.minimum(np.searchsorted(axis, steps - 1e-6 * axis[0]), axis.size - 1)
    counts = np.bincount(at, minlength=axis.size)
    means = np.bincount(at, values, axis.size) / np.maximum(counts, 1)
    known = counts > 0
    made = np.interp(axis, axis[known], means[known], left=np.nan)
    last = max(np.searchsorted(axis, end - 1e-6 * axis[0]), at.max())
    return np.where(np.arange(axis.size) <= last, made, np.nan)
