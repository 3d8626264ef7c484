"""Perceptrons, read from a state's leaves."""

from __future__ import annotations

import math

import numpy as np

from oracles.pieces.leaves import Leaves


def gelu(x: np.ndarray) -> np.ndarray:
    """Return GELU by its tanh approximation (Hendrycks 2016, section 2)."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def silu(x: np.ndarray) -> np.ndarray:
    """Return x sigma(x) (Elfwing 2018)."""
    return x / (1.0 + np.exp(-x))


def elu(x: np.ndarray) -> np.ndarray:
    """Return x, and exp(x) - 1 below 0 (Clevert 2016)."""
    return np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0)))


ACTIVATIONS = {"relu": lambda x: np.maximum(x, 0.0), "tanh": np.tanh, "gelu": gelu}
ACTIVATIONS |= {"silu": silu, "elu": elu}


def layer_norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return rows of zero mean and unit deviation, scaled and shifted (Ba 2016, eq. 4)."""
    centred = x - mean(x)
    return centred / np.sqrt(mean(centred**2) + 1e-6) * scale + shift


def mean(x: np.ndarray) -> np.ndarray:
    """Return the mean of each row; ``x.mean`` takes several times as long for small rows."""
    return np.add.reduce(x, -1, keepdims=True) / x.shape[-1]


def perceptron(
    state: Leaves, prefix: str, x: np.ndarray, activation: str = "relu", member: int | None = None
) -> np.ndarray:
    """Return the network's outputs ``(row, output)``; of an ensemble those of one ``member``.

    Where a hidden layer has a norm, it is applied before the activation.
    """

    def read(path: str) -> np.ndarray:
        leaf = state[f"{prefix}.{path}"]
        return leaf if member is None else leaf[member]

    depth = sum(1 for path in state.under(prefix) if path.endswith(".weight"))
    for index in range(depth):
        x = x @ read(f"layers[{index}].weight") + read(f"layers[{index}].bias")
        if index == depth - 1:
            return x
        if f"{prefix}.norms[{index}].scale" in state:
            x = layer_norm(x, read(f"norms[{index}].scale"), read(f"norms[{index}].shift"))
        x = ACTIVATIONS[activation](x)
    raise ValueError(f"no network at {prefix}")


def slope_in_inputs(state: Leaves, prefix: str, x: np.ndarray, member: int) -> np.ndarray:
    """Return d output / d input of a ReLU network with one output, ``(row, input)``, by the chain
    rule written out. Its hidden layers have no norms."""
    depth = sum(1 for path in state.under(prefix) if path.endswith(".weight"))
    gates, weights = [], []
    for index in range(depth):
        weights.append(state[f"{prefix}.layers[{index}].weight"][member])
        x = x @ weights[-1] + state[f"{prefix}.layers[{index}].bias"][member]
        gates.append(x > 0.0)
        x = np.maximum(x, 0.0)
    back = np.broadcast_to(weights[-1][:, 0], (len(x), len(weights[-1])))
    for gate, weight in zip(reversed(gates[:-1]), reversed(weights[:-1]), strict=True):
        back = (back * gate) @ weight.T
    return back


def twins(state: Leaves, prefix: str, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Return Q_1(s, a) and Q_2(s, a) as ``(2, row)``: of continuous actions ``(row, number)``, or
    of choices ``(row,)`` of whole numbers."""
    if action.ndim == 1:
        values = twins_of_choices(state, prefix, obs)
        return values[:, np.arange(len(action)), action.astype(int)]
    both = np.concatenate([obs, action], -1)
    return np.stack([perceptron(state, f"{prefix}.{i}", both)[:, 0] for i in ("first", "second")])


def twins_of_choices(state: Leaves, prefix: str, obs: np.ndarray) -> np.ndarray:
    """Return Q_1(s, .) and Q_2(s, .) as ``(2, row, choice)``."""
    return np.stack([perceptron(state, f"{prefix}.{i}", obs) for i in ("first", "second")])
