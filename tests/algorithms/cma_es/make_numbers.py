"""Write numbers.json: what the package cmaes 0.13.1 makes of a few generations.

pip install cmaes==0.13.1 && python tests/algorithms/cma_es/make_numbers.py

It is not among the requirements, because nothing else needs it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from cmaes import CMA, SepCMA

SIZE, POINTS, GENERATIONS, SIGMA = 4, 8, 6, 0.5


def loss(x: np.ndarray) -> float:
    """Return an ellipsoid's height, along axes that are not the coordinates'."""
    turned = x + 0.3 * np.roll(x, 1)
    return float(np.sum(np.array([1.0, 3.0, 10.0, 30.0]) * turned**2))


def rows(search: Any) -> list[dict[str, Any]]:
    """Return every generation's points, from the best to the worst, in units of N(0, I), and the
    distribution after it. Points are drawn by other means, so that they are known."""
    rng, found = np.random.default_rng(3), []
    for _ in range(GENERATIONS):
        z = rng.normal(size=(POINTS, SIZE))
        if isinstance(search, SepCMA):
            y = z * search._eigen_decomposition()
        else:
            basis, scales = search._eigen_decomposition()
            y = (z * scales) @ basis.T
            z = z @ basis.T  # as C^-1/2 y, whatever the signs of the eigenvectors
        x = search._mean + search._sigma * y
        order = np.argsort([loss(each) for each in x], kind="stable")
        start = search._mean.copy()
        search.tell([(x[i].copy(), loss(x[i])) for i in order])
        found.append(
            {
                "white": z[order].tolist(),
                "shift": (search._mean - start).tolist(),
                "sigma": float(search._sigma),
                "path_sigma": search._p_sigma.tolist(),
                "path_c": search._pc.tolist(),
                "covariance": search._C.tolist(),
            }
        )
    return found


def main() -> None:
    """Write the numbers of both forms."""
    mean = np.array([1.0, -2.0, 0.5, 3.0])
    made = {
        "weights": {
            f"{size},{points}": CMA(np.zeros(size), 1.0, population_size=points)._weights.tolist()
            for size, points in ((4, 8), (50, 4), (300, 64))  # in each another bound holds
        },
        "full": rows(CMA(mean.copy(), SIGMA, population_size=POINTS)),
        "diagonal": rows(SepCMA(mean.copy(), SIGMA, population_size=POINTS)),
    }
    path = Path(__file__).with_name("numbers.json")
    path.write_text(json.dumps({"sigma": SIGMA, **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
