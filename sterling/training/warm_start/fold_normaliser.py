"""Fold a normaliser of observations into the first layers of networks, for agents without one.

A network reads normalised features y = (x - m) s. With the weights s W and the bias b - (m s) W it
computes the same from x: (s x) W + b - (m s) W = y W + b. Features beyond the clip of a running
normaliser differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from sterling.equations.running_moments import EPSILON
from sterling.nets.obs_encoder import Encoder
from sterling.training.warm_start.learned_parts import NETWORK, OBS_STATISTICS, Part
from sterling.types import Mistake

FIRST_WEIGHT, FIRST_BIAS = "/layers/0/weight", "/layers/0/bias"

Found = dict[str, dict[str, np.ndarray]]  # parts -> paths in the State -> arrays


def fold_normaliser(
    state: PyTree, parts: list[Part], found: Found, arrays: Mapping[str, np.ndarray]
) -> Found:
    """Return the arrays ``found``, with the statistics of observations among ``arrays`` folded into
    all first layers. Raise Mistake if observations are encoded by convolutions."""
    encoders = [x for x in jax.tree.leaves(state, is_leaf=_is_encoder) if _is_encoder(x)]
    if not encoders or not all(encoder.is_flat for encoder in encoders):
        raise Mistake("the networks read normalised observations, and this run does not normalise "
                      "them. Train the earlier run with --no-normalise-obs.")  # fmt: skip
    mean, scale = _feature_statistics(encoders[0], arrays)
    names = {part.name: part.leaves for part in parts if part.kind == NETWORK}
    return {
        name: _fold(names[name], each, mean, scale) if name in names else each
        for name, each in found.items()
    }


def _is_encoder(node: Any) -> bool:
    return isinstance(node, Encoder)


def _feature_statistics(
    encoder: Encoder, arrays: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and scale of every feature of an encoder, ``(seed, features)``; 0 and 1 for
    features that are not normalised."""
    count = len(next(iter(arrays.values())))
    means, scales = [], []
    for index, kind in enumerate(encoder.kinds):
        size = sum(kind.sizes) if kind.sizes else math.prod(kind.shape)
        name = f"{OBS_STATISTICS}/moments/{index}"
        mean, rest, variance = (
            np.asarray(arrays.get(f"{name}/{word}", np.zeros((count, size))), np.float64)
            for word in ("mean", "remainder", "variance")
        )
        means.append((mean + rest).reshape(count, size))
        scale = np.where(variance > 0.0, 1.0 / np.sqrt(variance + EPSILON), 1.0)
        scales.append(scale.reshape(count, size))
    return np.concatenate(means, -1), np.concatenate(scales, -1)


def _fold(
    names: Mapping[str, str], found: dict[str, np.ndarray], mean: np.ndarray, scale: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the arrays of one network, with its first layer changed. Inputs after the features,
    such as actions, stay unchanged."""
    paths = {end: next((p for n, p in names.items() if n.endswith(end)), "")
             for end in (FIRST_WEIGHT, FIRST_BIAS)}  # fmt: skip
    weight = found.get(paths[FIRST_WEIGHT])
    if weight is None:
        return found
    count, features = mean.shape
    members = (1,) * (weight.ndim - 3)  # of an ensemble
    rest = weight.shape[-2] - features
    mean = np.pad(mean, ((0, 0), (0, rest))).reshape(count, *members, -1, 1)
    scale = np.pad(scale, ((0, 0), (0, rest)), constant_values=1.0).reshape(mean.shape)
    folded = weight * scale
    bias = found[paths[FIRST_BIAS]] - np.sum(mean * folded, -2)
    return found | {paths[FIRST_WEIGHT]: folded, paths[FIRST_BIAS]: bias}
