"""How far the arms of the skew-t interval must reach: the table in mean_intervals.py.

    python benchmarks/statistics/calibrate.py

For each n it looks for ``base`` and ``slope`` in c(g) = max(1, base + slope g) such that the
interval holds the mean in at least 94.5 % of samples from every log-normal with sigma up to 1, with
the least width on average over normal scores and those log-normal ones. Takes a few minutes.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.special import stdtrit

SIGMAS = (0.5, 0.75, 1.0)
SIZES = (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 50, 100, 200)
TARGET, LEVEL = 0.945, 0.95
Drawn = tuple[np.ndarray, np.ndarray]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=100_000)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    for n in SIZES:
        drawn = [statistics(rng, options.samples, n, sigma) for sigma in (0.0, *SIGMAS)]
        base, slope, widths = best(drawn, float(stdtrit(n - 1, 0.5 + LEVEL / 2)), n)
        said = " ".join(f"{width:.2f}" for width in widths)
        print(f"    ({n}, {base:.2f}, {slope:.2f}),  # width over t: {said}", flush=True)


def statistics(rng: np.random.Generator, samples: int, n: int, sigma: float) -> Drawn:
    """Student's statistic and the skewness, as a share of its largest, of many samples."""
    z = rng.standard_normal((samples, n))
    x, true = (np.exp(sigma * z), np.exp(sigma**2 / 2)) if sigma else (z, 0.0)
    away = x - x.mean(1, keepdims=True)
    second = (away**2).mean(1)
    largest = max(n - 2, 1) / np.sqrt(n - 1)
    skewness = (away**3).mean(1) / second**1.5 / largest
    return (x.mean(1) - true) / np.sqrt(second / (n - 1)), skewness


def best(drawn: list[Drawn], quantile: float, n: int) -> tuple[float, float, list[float]]:
    """The narrowest arms, and their widths as multiples of Student's."""
    steps = np.linspace(0.0, 1.0, 21) * max(n - 2, 0) / np.sqrt(max(n - 1, 1)) * 2.6
    found = [(narrow(drawn, quantile, float(slope)), float(slope)) for slope in np.unique(steps)]
    tried = [(base, slope, widths(drawn, base, slope)) for base, slope in found]
    return min(tried, key=lambda one: float(np.mean(one[2])))


def narrow(drawn: list[Drawn], quantile: float, slope: float) -> float:
    """The smallest base that holds enough, by bisection."""
    low, high = -10.0, 8.0
    for _ in range(16):
        base = (low + high) / 2
        enough = min(held(one, quantile, base, slope) for one in drawn[1:]) >= TARGET
        low, high = (low, base) if enough else (base, high)
    return high


def held(drawn: Drawn, quantile: float, base: float, slope: float) -> float:
    """The share of samples whose interval holds the true mean."""
    t, skewness = drawn
    up, down = (np.maximum(1.0, base + sign * slope * skewness) for sign in (1, -1))
    return float(((-t <= up * quantile) & (t <= down * quantile)).mean())


def widths(drawn: list[Drawn], base: float, slope: float) -> list[float]:
    """The mean width of the interval over that of Student's."""
    return [float(np.maximum(1.0, base + slope * g).mean() / 2
                  + np.maximum(1.0, base - slope * g).mean() / 2) for _, g in drawn]  # fmt: skip


if __name__ == "__main__":
    main()
