"""Read the convolutions of a ``CnnPolicy`` of Stable-Baselines3 under Sterling's names.

There a picture goes through Nature's convolutions and one linear layer with relu, which policy and
value share; here every network has that layer as its first one. torch's pictures have their
channels first, also when they are flattened, and Sterling's have them last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sterling.nets.convolution import NATURE_LAYERS
from sterling.types import Mistake

TORSO = "torso/parts/0"
CONVOLUTIONS = ("cnn.0", "cnn.2", "cnn.4")  # torch numbers the activations too


def read_convolutions(
    label: str, extractor: str, shape: Any, tensors: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the convolutions of ``extractor`` by Sterling's names, and its linear layer.

    ``shape``: the observations', channels first. Raise Mistake for other extractors than Nature's.
    """
    names = [f"{extractor}.{each}" for each in (*CONVOLUTIONS, "linear.0")]
    if not all(f"{name}.weight" in tensors for name in names):
        raise Mistake(f"{label} has an extractor of its own. Sterling reads NatureCNN.")
    made: dict[str, np.ndarray] = {}
    channels, *sides = (int(each) for each in shape)
    for number, (name, (outputs, kernel, stride)) in enumerate(
        zip(names[:-1], NATURE_LAYERS, strict=True)
    ):
        weight = tensors[f"{name}.weight"]
        if weight.shape != (outputs, channels, kernel, kernel):
            raise Mistake(f"{label} has convolutions of {weight.shape}, and NatureCNN's have "
                          f"{(outputs, channels, kernel, kernel)}.")  # fmt: skip
        made[f"{TORSO}/layers/{number}/weight"] = weight.transpose(2, 3, 1, 0)
        made[f"{TORSO}/layers/{number}/bias"] = tensors[f"{name}.bias"]
        channels, sides = outputs, [(side - kernel) // stride + 1 for side in sides]
    weight = tensors[f"{names[-1]}.weight"]
    if weight.shape[-1] != channels * math.prod(sides):
        raise Mistake(f"{label} has a layer of {weight.shape[-1]} features after its convolutions, "
                      f"and its observations give {channels * math.prod(sides)}.")  # fmt: skip
    last = weight.reshape(-1, channels, *sides).transpose(2, 3, 1, 0)
    inner = {"weight": last.reshape(-1, len(weight)), "bias": tensors[f"{names[-1]}.bias"]}
    return made, inner
