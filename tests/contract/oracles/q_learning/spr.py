"""SPR (Schwarzer 2021): Rainbow on latents, and the cosines of predicted latents, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron
from oracles.pieces.slopes import gradient
from oracles.q_learning import c51, qr_dqn, rainbow


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from stretches ``(batch, time, ...)``."""

    def scores_of(net: str, obs: np.ndarray, role: str) -> np.ndarray:
        noise = [draws[f"{role} {stream}"] for stream in ("value", "advantage")]
        return rainbow.logits(state, net, latent(state, net, obs), config, noise)

    def project(net: str, z: np.ndarray) -> np.ndarray:
        layers = (f"{net}.{stream}.mean.layers[0]" for stream in ("value", "advantage"))
        return np.concatenate([z @ state[f"{x}.weight"] + state[f"{x}.bias"] for x in layers], 1)

    slope, metrics, samples = found(state, batch, config, (scores_of, project))
    qr_dqn.step(state, slope, config)
    return metrics, samples


def found(
    state: Leaves, batch: Any, config: dict, pieces: tuple[Any, Any]
) -> tuple[np.ndarray, dict[str, float], dict[str, np.ndarray]]:
    """Return the gradient of the loss, the metrics, and what each stretch says, given functions of
    a network: the logits of observations, and what its latents are projected to."""
    scores_of, project = pieces
    m = targets(scores_of, batch, config)
    slope, metrics = descent(state, batch, config, (m, scores_of, project))
    metrics["loss/grad_norm"] = adam.norm(slope)
    scores = scores_of(".net", batch["obs"][:, 0], "now")[np.arange(len(m)), batch["action"][:, 0]]
    counted = batch["mask"][:, 0]
    q = c51.chances(scores) @ c51.atoms(config)
    metrics["value/q"] = float(q[counted].mean())
    samples = c51.told(scores, m, {"weight": np.ones(len(m))}, config)[1]
    return slope, metrics, samples


def targets(scores_of: Any, batch: Any, config: dict) -> np.ndarray:
    """Return m of the first row of every stretch."""
    following, rows = batch["next_obs"][:, 0], np.arange(len(batch["reward"]))
    first = {name: x[:, 0] for name, x in batch.items() if name not in ("weight", "place")}
    chances = c51.chances(scores_of(".target", following, "next"))
    chooser = c51.chances(scores_of(".net", following, "choice"))
    best = qr_dqn.greedy(chooser @ c51.atoms(config), first)
    return c51.projected(chances[rows, best], first, config)


def descent(
    state: Leaves, batch: Any, config: dict, pieces: tuple[Any, Any, Any]
) -> tuple[np.ndarray, dict[str, float]]:
    """Return the gradient of the loss, and its two parts."""
    m, scores_of, project = pieces
    rows, counted = np.arange(len(m)), batch["mask"][:, 0]
    steps = config["prediction_steps"]
    goals = [
        project(".target", latent(state, ".target", batch["obs"][:, 1 + k])) for k in range(steps)
    ]

    def parts() -> tuple[float, float]:
        scores = scores_of(".net", batch["obs"][:, 0], "now")[rows, batch["action"][:, 0]]
        each = -np.sum(m * np.log(c51.chances(scores)), 1)
        z, agreement = latent(state, ".net", batch["obs"][:, 0]), np.zeros(len(m))
        together = counted.copy()
        for k in range(steps):
            z = moved(state, z, batch["action"][:, k])
            guess = perceptron(state, ".net.predictor", project(".net", z))
            together &= batch["mask"][:, 1 + k]
            agreement += np.where(together, cosine(guess, goals[k]), 0.0)
        weight = batch["weight"]
        return (weight * each)[counted].mean(), -(weight * agreement)[counted].mean()

    slope = gradient(lambda: parts()[0] + config["prediction_coef"] * parts()[1], state, ".net")
    value, prediction = parts()
    return slope, {"loss/value": value, "loss/prediction": prediction}


def latent(state: Leaves, net: str, obs: np.ndarray) -> np.ndarray:
    """Return z, the first hidden layer between 0 and 1."""
    layer = f"{net}.psi.layers[0]"
    return between(np.maximum(obs @ state[f"{layer}.weight"] + state[f"{layer}.bias"], 0.0))


def moved(state: Leaves, z: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Return the next z by the model."""
    layers = ".net.transition.layers"
    choices = state[f"{layers}.layers[0].weight"].shape[0] - z.shape[1]
    hidden = perceptron(state, layers, np.concatenate([z, np.eye(choices)[action]], 1))
    return between(np.maximum(hidden, 0.0))


def between(x: np.ndarray) -> np.ndarray:
    """Return each row moved and scaled to [0, 1]."""
    low, high = x.min(1, keepdims=True), x.max(1, keepdims=True)
    return (x - low) / (high - low + 1e-5)


def cosine(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the cosine of the angle between rows."""
    return np.sum(x * y, 1) / (np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1))
