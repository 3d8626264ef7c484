"""Small settings with which a check takes seconds, by the field names of Sterling's algorithms."""

from __future__ import annotations

import dataclasses
from typing import Any

SMALL_VALUES: dict[str, Any] = {
    **{"gamma": 0.8, "gae_lambda": 0.9, "minibatch": 64, "epochs": 4, "batch": 64},
    **{"length": 16, "burn_in": 4},
    **{"collect": 1, "learn": 1, "capacity": 4_000, "warmup": 400, "target_period": 25},
    **{"limit": 16},  # steps of a population's episodes
    **{"model_updates": 20, "model_batch": 64, "model_width": 16, "branches": 8, "kept": 2_000},
    **{"reward_updates": 20, "reward_batch": 32, "reward_width": 16},
    **{"reward_lr": 1e-2, "ask_every": 8, "segment": 1},  # episodes of some probes have one step
    **{"exploration_fraction": 0.5, "exploration_final": 0.1, "alpha": 0.01, "tune_alpha": False},
    **{"normalise_obs": False, "normalise_reward": False, "entropy_coef": 0.0, "log_std": -0.5},
}
LEARNING_RATES = {"rollouts": 5e-3, "replay": 3e-3}
WIDTH = {"rollouts": 16, "replay": 32}
TAU = 0.05  # for a target network that moves at every update


def small_fields(config: Any, rollouts: bool, given: dict[str, Any]) -> dict[str, Any]:
    """Return the Config fields for problems that take seconds; those ``given`` stay."""
    defaults: dict[str, Any] = {each.name: each.default for each in dataclasses.fields(config)}
    kind = "rollouts" if rollouts else "replay"
    wanted = {**SMALL_VALUES, "lr": LEARNING_RATES[kind], "width": WIDTH[kind]}
    if defaults.get("tau", 1.0) < 0.5:
        wanted["tau"] = TAU
    small = {
        name: value
        for name, value in wanted.items()
        if name in defaults and type(value) is type(defaults[name])
    }
    return {**small, **given}
