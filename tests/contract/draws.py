"""The random numbers of one update, by the derivations that the algorithms' files document.

A key below a key is ``sterling.keys.fold(key, purpose)``; of several alike, ``keys.deal``. These and
``jax.random`` are all that the oracles have in common with Sterling.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from sterling import keys


def normal(key: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return standard normal numbers in float64."""
    return np.asarray(jax.random.normal(key, shape), np.float64)


def ppo(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """Each epoch's order of rows: they are sorted by random bits."""
    if config.minibatch == rows:
        return {"order": [np.arange(rows)] * config.epochs}
    dice = np.asarray(jax.random.bits(key, (config.epochs, rows)))
    return {"order": [np.argsort(each, kind="stable") for each in dice]}


def target_noise(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """TD3 and its kin: the noise on target actions, by the key itself."""
    return {"noise": normal(key, (rows, size))}


def next_and_now(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """SAC and its kin: what samples the policy in s' and in s."""
    return {name: normal(keys.fold(key, name), (rows, size)) for name in ("next", "now")}


def none(key: Any, config: Any, rows: int, size: int) -> dict[str, Any]:
    """Nothing is drawn."""
    return {}


DRAWS = {
    "ppo": ppo,
    "td3": target_noise,
    "sac": next_and_now,
}
