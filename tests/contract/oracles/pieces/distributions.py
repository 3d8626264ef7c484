"""Probabilities of actions."""

from __future__ import annotations

import numpy as np


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return log p of every choice."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def of_choice(log_p: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Return log p(a) of the choices that were made."""
    return log_p[np.arange(len(action)), action.astype(int)]


def entropy_of_choices(log_p: np.ndarray) -> np.ndarray:
    """Return -sum p log p of every row."""
    return -np.sum(np.exp(log_p) * log_p, -1)


def normal_log_prob(x: np.ndarray, mean: np.ndarray, log_std: np.ndarray) -> np.ndarray:
    """Return the log-density of independent normals, summed over the last axis."""
    std = np.exp(log_std)
    return np.sum(-((x - mean) ** 2) / (2.0 * std**2) - np.log(std * np.sqrt(2.0 * np.pi)), -1)


def normal_entropy(log_std: np.ndarray) -> np.ndarray:
    """Return the differential entropy of independent normals."""
    return np.sum(0.5 * np.log(2.0 * np.pi * np.e * np.exp(log_std) ** 2), -1)


def squashed(
    mean: np.ndarray, log_std: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return tanh(mean + std noise) and its log-density (Haarnoja 2018, eq. 21)."""
    raw = mean + np.exp(log_std) * noise
    change = np.log(4.0) - 2.0 * np.log(np.exp(raw) + np.exp(-raw))  # log (1 - tanh^2)
    return np.tanh(raw), normal_log_prob(raw, mean, log_std) - change.sum(-1)
