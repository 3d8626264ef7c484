"""PB2: population-based training that explores by a bandit (Parker-Holder 2020, arXiv:2002.02518).

The effect of a setting x on the score of an agent in generation t with score r,

    y = score after - score before   ~   GP(0, k),
    k((t, r, x), (t', r', x')) = exp(-|z - z'|^2 / (2 l^2)) (1 - e)^(|t - t'| / 2),   z = (r, x)

(equation 6: older observations count less), is regressed on all generations so far; l, e and the
noise maximise the marginal likelihood. A copy takes the x with the largest upper bound

    mean(x) + sqrt(b) sd(x),        b = 0.2 + max(0, log(0.4 n))

with n observations, as in the authors' code. The deviation also counts as observed the settings
that other trials of this generation already have, so a population does not crowd on one point
(Desautels 2014, JMLR 15). x lies in the unit cube, r in [0, 1], y is standardised.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from sterling.tuning.search_space import Fields, Space
from sterling.tuning.searchers.population_training import PerturbExplorer

CANDIDATES = 512  # random points; the climbs start from the best of them
CLIMBS = 3
MAX_OBSERVATIONS = 400  # only the newest are used, since old ones have no weight
BOUNDS = ((math.log(0.05), math.log(5.0)), (math.log(1e-4), math.log(1.0)), (0.0, 0.9))
INITIAL_THETA = (math.log(0.5), math.log(0.1), 0.1)  # log l, log noise variance, e

Rows = Float[np.ndarray, "_ column"]  # t, r, x...


def kernel(a: Rows, b: Rows, length: float, forget: float) -> Float[np.ndarray, "_ _"]:
    """Return k of the module docstring; ``length`` is l, ``forget`` is e."""
    distance = np.square(a[:, None, 1:] - b[None, :, 1:]).sum(-1)
    age = np.abs(a[:, None, 0] - b[None, :, 0])
    return np.exp(-0.5 * distance / length**2) * (1.0 - forget) ** (0.5 * age)


def negative_log_likelihood(theta: np.ndarray, seen: Rows, y: Float[np.ndarray, "row"]) -> float:
    """Return the negative log marginal likelihood, without its constant (Rasmussen 2006, eq.
    2.30)."""
    length, noise, forget = math.exp(theta[0]), math.exp(theta[1]), float(theta[2])
    gram = kernel(seen, seen, length, forget) + noise * np.eye(len(y))
    factor = cho_factor(gram, lower=True)
    return float(0.5 * y @ cho_solve(factor, y) + np.log(np.diag(factor[0])).sum())


class GaussianProcess:
    """The Gaussian process through ``y`` at the rows ``seen``."""

    def __init__(self, seen: Rows, y: Float[np.ndarray, "row"], theta: np.ndarray | None = None):
        if theta is None:
            theta = minimize(
                negative_log_likelihood, INITIAL_THETA, (seen, y), "L-BFGS-B", bounds=BOUNDS
            ).x
        self.length, self.noise, self.forget = math.exp(theta[0]), math.exp(theta[1]), theta[2]
        self._seen = seen
        self._weights = cho_solve(self._factor(seen), y)

    def mean(self, rows: Rows) -> Float[np.ndarray, "_"]:
        """Return the posterior mean."""
        return kernel(rows, self._seen, self.length, self.forget) @ self._weights

    def deviation(self, rows: Rows, pending: Rows) -> Float[np.ndarray, "_"]:
        """Return the posterior deviation, with the rows ``pending`` counted as observed."""
        seen = np.concatenate([self._seen, pending])
        cross = kernel(rows, seen, self.length, self.forget)
        explained = (cross * cho_solve(self._factor(seen), cross.T).T).sum(1)
        return np.sqrt(np.maximum(1.0 - explained, 1e-12))

    def _factor(self, seen: Rows) -> tuple[np.ndarray, bool]:
        gram = kernel(seen, seen, self.length, self.forget)
        return cho_factor(gram + self.noise * np.eye(len(seen)), lower=True)


class BanditExplorer:
    """Explores by the largest upper bound; perturbs until there are two observations."""

    def __init__(self) -> None:
        self._seen: list[tuple[int, float, Fields, float]] = []  # time, before, fields, after

    def note(self, time: int, before: float, fields: Fields, after: float) -> None:
        """Record an observation; failed trials have no finite score and are left out."""
        if math.isfinite(before) and math.isfinite(after):
            self._seen.append((time, before, fields, after))

    def propose(
        self,
        space: Space,
        draw: np.random.Generator,
        fields: Fields,
        *,
        time: int,
        score: float,
        pending: list[Fields],
    ) -> Fields:
        """Return the settings with the largest upper bound."""
        if len(self._seen) < 2:
            return PerturbExplorer().propose(
                space, draw, fields, time=time, score=score, pending=pending
            )
        newest = self._seen[-MAX_OBSERVATIONS:]
        scores = np.array([before for _, before, _, _ in newest] + [score])
        low, width = scores.min(), max(float(np.ptp(scores)), 1e-12)
        context = np.array([float(time), (score - low) / width])
        seen = np.array([[t, (r - low) / width, *space.point(f)] for t, r, f, _ in newest])
        change = np.array([after - before for _, before, _, after in newest])
        y = (change - change.mean()) / (change.std() or 1.0)
        others = np.array([[*context, *space.point(f)] for f in pending])
        others = others.reshape(len(pending), 2 + len(space))
        return space.fields(
            _maximise_bound(GaussianProcess(seen, y), context, others, len(space), draw)
        )


def _maximise_bound(
    model: GaussianProcess,
    context: Float[np.ndarray, "2"],
    pending: Rows,
    dimensions: int,
    draw: np.random.Generator,
) -> Float[np.ndarray, "dimensions"]:
    """Return the point of the unit cube with the largest upper bound."""
    width = math.sqrt(0.2 + max(0.0, math.log(0.4 * len(model._seen))))

    def lower(points: np.ndarray) -> Float[np.ndarray, "_"]:
        points = points.reshape(-1, dimensions)
        rows = np.concatenate([np.tile(context, (len(points), 1)), points], 1)
        return -(model.mean(rows) + width * model.deviation(rows, pending))

    candidates = draw.random((CANDIDATES, dimensions))
    starts = candidates[np.argsort(lower(candidates), kind="stable")[:CLIMBS]]
    bounds = [(0.0, 1.0)] * dimensions
    climbs = [
        minimize(lambda x: float(lower(x)[0]), start, method="L-BFGS-B", bounds=bounds)
        for start in starts
    ]
    return np.clip(min(climbs, key=lambda climb: float(climb.fun)).x, 0.0, 1.0)
