"""The mean of scores with declared bounds: an interval that needs no other assumption.

For scores that are at least ``low``, the lower end at one-sided error e is the e-quantile of

    sum_i g_i x_i + g_{n+1} low,      g ~ Dirichlet(1, ..., 1)

which is the bound of Learned-Miller & Thomas 2020 (arXiv:1905.06208): they write it with the order
statistics of n uniforms, whose spacings are g. The upper end mirrors it at ``high``. Intuitively,
one more run with the worst possible score is added, and the weights of all n + 1 are random.

It is not known to fail for any distribution, and it did not in ``benchmarks/statistics``; the
authors prove special cases and conjecture the rest.

The quantile is computed, not sampled. For knots a_j the chance of ``sum g_j a_j <= t`` is the
volume of a simplex cut by a half-space (Varsi 1973, Pacific J. Math. 45): with y_k = a_k - t over
the knots above t and z_h = t - a_h over those below,

    F(h, k) = (y_k F(h - 1, k) + z_h F(h, k - 1)) / (y_k + z_h),    F(h, 0) = 1,  F(0, k) = 0

which takes weighted means only, so nothing cancels. Bisection then finds t. Beyond
``MAX_EXACT_SCORES`` scores, where that takes seconds, the quantile is sampled with a fixed key.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from sterling.types import Mistake

Values = Float[np.ndarray, "run *rest"]
Ends = tuple[Float[np.ndarray, "*rest"], Float[np.ndarray, "*rest"]]
MAX_EXACT_SCORES = 200  # scores
DRAWS, CHUNK = 20_000, 500
HALVINGS = 26  # of the knots' range: down to 1.5e-8 of it, rounded outwards


def bounded_mean(values: Values, low: float | None, high: float | None, level: float) -> Ends:
    """Return the ends of an interval of the mean over the first axis, ``(low, high)``.

    Either end misses the mean with chance at most ``(1 - level) / 2``. Where a bound is None (or
    infinite) the end on that side is -inf or inf. Ends are rounded outwards. A pure function of its
    arguments; costs about 30 n^2 operations per column and end.

    Raises Mistake for a value outside the bounds.
    """
    if low is not None and (values < low).any():
        raise Mistake(f"the score {values.min():g} lies below the declared bound {low:g}")
    if high is not None and (values > high).any():
        raise Mistake(f"the score {values.max():g} lies above the declared bound {high:g}")
    tail = (1.0 - level) / 2.0
    down, up = (np.full(values.shape[1:], end) for end in (-np.inf, np.inf))
    if low is not None and np.isfinite(low):
        down = lower_end(values, low, tail)
    if high is not None and np.isfinite(high):
        up = -lower_end(-values, -high, tail)
    return np.asarray(down), np.asarray(up)


def lower_end(values: Values, low: float, error: float) -> Float[np.ndarray, "*rest"]:
    """Return the lower end for scores that are at least ``low``, at one-sided ``error``."""
    flat = values.reshape(len(values), -1).astype(np.float64)
    knots = np.sort(np.concatenate([np.full((1, flat.shape[1]), low), flat]), axis=0)
    two = (knots == knots[:1]).sum(0) + (knots == knots[-1:]).sum(0) >= len(knots)
    ends = np.empty(flat.shape[1])
    ends[two] = _two_value_quantile(knots[:, two], error)
    if len(flat) <= MAX_EXACT_SCORES:
        ends[~two] = _dirichlet_quantile(knots[:, ~two], error)
    else:
        ends[~two] = [_sampled_quantile(column, error) for column in knots[:, ~two].T]
    return ends.reshape(values.shape[1:])


def _two_value_quantile(
    knots: Float[np.ndarray, "knot column"], error: float
) -> Float[np.ndarray, "column"]:
    """Return the quantile where scores take one value besides the bound: a beta quantile."""
    from scipy.special import betaincinv  # slow to import, and not every use needs it

    least, most = knots[0], knots[-1]
    above = (knots > least).sum(0)
    share = np.where(above > 0, betaincinv(np.maximum(above, 1), len(knots) - above, error), 0.0)
    return least + (most - least) * share


def _dirichlet_quantile(
    knots: Float[np.ndarray, "knot column"], error: float
) -> Float[np.ndarray, "column"]:
    """Return the quantile of the Dirichlet mean of ascending knots, by bisection, rounded down."""
    below, above = knots[0].copy(), knots[-1].copy()
    for _ in range(HALVINGS if knots.size else 0):
        middle = below + (above - below) / 2.0
        too_likely = probability_below(knots, middle) > error
        above = np.where(too_likely, middle, above)
        below = np.where(too_likely, below, middle)
    return below


def _sampled_quantile(knots: Float[np.ndarray, "knot"], error: float) -> float:
    """Return the quantile for many knots, from draws with a fixed key; two standard errors low."""
    rng = np.random.default_rng(0)
    means = np.empty(DRAWS)
    for start in range(0, DRAWS, CHUNK):
        weights = rng.standard_exponential((CHUNK, len(knots)))
        means[start : start + CHUNK] = weights @ knots / weights.sum(1)
    place = int(error * DRAWS - 2.0 * math.sqrt(error * DRAWS))
    return float(np.sort(means)[max(place, 0)])


def probability_below(
    knots: Float[np.ndarray, "knot column"], t: Float[np.ndarray, "column"]
) -> Float[np.ndarray, "column"]:
    """Return the probability that a Dirichlet(1, ..., 1) mean of ascending knots is at most ``t``.

    F is filled along its antidiagonals h + k = d. Knots that are not above t come first in k and
    have F = 1; those that are not below t leave F as it is.
    """
    count = len(knots)
    up, down = np.maximum(knots - t, 0.0), np.maximum(t - knots, 0.0)
    edge = (up == 0.0).astype(np.float64)  # F(0, k), k = 1 ... count
    up = up[::-1]  # so that k = d - h rises with h
    diagonal = np.ones((count + 1, knots.shape[1]))  # F(h, d - h) in row h; here d = 0
    for d in range(1, 2 * count + 1):
        first, last = max(d - count, 1), min(d - 1, count)
        y, z = up[count - d + first : count - d + last + 1], down[first - 1 : last]
        whole = y + z
        share = np.divide(y, whole, out=np.ones_like(y), where=whole > 0.0)
        before, here = diagonal[first - 1 : last], diagonal[first : last + 1]
        moved = here + share * (before - here)
        if d <= count:
            diagonal[0], diagonal[d] = edge[d - 1], 1.0
        diagonal[first : last + 1] = moved
    return diagonal[count]
