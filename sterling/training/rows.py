"""What a row of metrics says of the episodes that agents lived, and of those that judge them."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float


def lived(tally: Any, alive: Bool[np.ndarray, "seed"]) -> dict[str, Any]:
    """The episodes that ended since the last row, of a source's ``tally`` (None: it has none)."""
    if tally is None:
        return {}
    episodes = np.maximum(tally.episodes, 1)
    live = alive & (tally.episodes > 0)
    means = {name: np.asarray(total) / episodes for name, total in tally.totals.items()}
    return {
        **{f"data/{name}": plain(mean, live) for name, mean in means.items()},
        "data/episodes": tally.episodes.tolist(),
        "data/invalid": tally.invalid.tolist(),
    }


def evaluated(
    found: dict[str, dict[str, np.ndarray]], here: str, alive: Bool[np.ndarray, "seed"]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the episodes of every world came to: of that ``here`` all, of others the return. Also
    each seed's "return" here, and in all "worlds"."""
    means = {
        world: {name: plain(x.mean(1), alive) for name, x in each.items() if name != "ended"}
        for world, each in found.items()
    }
    returns = {world: each["return"] for world, each in means.items()}
    row: dict[str, Any] = {f"evaluation/{name}": each for name, each in means[here].items()}
    if len(returns) > 1:
        row |= {f"evaluation/{world}/return": each for world, each in returns.items()}
    return row, {"return": returns[here], "worlds": returns}


def plain(values: Float[np.ndarray, "seed"], valid: Bool[np.ndarray, "seed"]) -> list[float | None]:
    """JSON numbers; None where a seed has nothing to say."""
    good = valid & np.isfinite(values)
    return [float(v) if ok else None for v, ok in zip(values, good, strict=True)]
