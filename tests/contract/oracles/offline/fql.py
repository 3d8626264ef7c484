"""Flow Q-learning (Park 2025)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.offline.iql import normalised
from oracles.online import td3
from oracles.pieces import adam
from oracles.pieces.leaves import Leaves
from oracles.pieces.networks import perceptron, twins
from oracles.pieces.slopes import gradient


def learn(state: Leaves, batch: Any, config: dict, draws: dict) -> tuple[dict, dict]:
    """Learn from transitions (Park 2025, algorithm 1). ``draws``: standard normal "next", "start"
    and "noise", and uniform "time" ``(row, 1)``."""
    batch = normalised(state, batch)
    action = np.clip(one_step(state, batch["next_obs"], draws["next"]), -1.0, 1.0)
    both = twins(state, ".target", batch["next_obs"], action)
    following = both.min(0) if config["q_agg"] == "min" else both.mean(0)
    y = batch["reward"] + config["gamma"] * batch["discount"] * following
    metrics, samples = td3.critics(
        state, batch, config, y, prefix=".critics", optimiser=".optimisers[1]"
    )
    metrics |= actors(state, batch, config, draws)
    state.follow(".target", ".critics", config["tau"])
    return metrics, samples


def velocity(state: Leaves, obs: np.ndarray, x: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Return v(s, t, x)."""
    return perceptron(state, ".actors.velocity", np.concatenate([obs, x, time], -1), "gelu")


def one_step(state: Leaves, obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return mu(s, z)."""
    return perceptron(state, ".actors.one_step", np.concatenate([obs, noise], -1), "gelu")


def flowed(state: Leaves, obs: np.ndarray, noise: np.ndarray, steps: int) -> np.ndarray:
    """Return where the flow carries ``noise``, within the space (Park 2025, algorithm 2)."""
    x = noise
    for step in range(steps):
        time = np.full((len(x), 1), step / steps)
        x = x + velocity(state, obs, x, time) / steps
    return np.clip(x, -1.0, 1.0)


def actors(state: Leaves, batch: Any, config: dict, draws: dict) -> dict:
    """Step flow and policy down the sum of their losses; return the metrics."""
    obs, logged = batch["obs"], batch["action"]
    reached = flowed(state, obs, draws["noise"], config["flow_steps"])  # a constant in the loss

    def q() -> np.ndarray:
        action = np.clip(one_step(state, obs, draws["noise"]), -1.0, 1.0)
        return twins(state, ".critics", obs, action).mean(0)

    size = float(np.mean(np.abs(q()))) if config["normalise_q"] else 1.0

    def terms() -> tuple[float, float, float]:
        start, time = draws["start"], draws["time"]
        moved = velocity(state, obs, time * logged + (1.0 - time) * start, time)
        flow = np.mean((moved - (logged - start)) ** 2)
        apart = np.mean((one_step(state, obs, draws["noise"]) - reached) ** 2)
        return flow, apart, float(flow + config["alpha"] * apart - np.mean(q()) / size)

    flow, apart, total = terms()
    slope = gradient(lambda: terms()[2], state, ".actors")
    adam.descend(state, ".actors", ".optimisers[0]", slope, config["lr"])
    return {"loss/flow": flow, "loss/distillation": apart, "loss/policy": total}
