"""The listed algorithms, with settings small enough for probe worlds. A new one is added here."""

from __future__ import annotations

import dataclasses
from typing import Any

KINDS = ("constant", "observation", "delay", "action", "both", "cut", "limits")


@dataclasses.dataclass(frozen=True)
class Case:
    """How to run one algorithm on problems that take seconds."""

    name: str
    spaces: tuple[str, ...]  # "" for discrete, "-continuous"
    steps: int  # enough to solve a probe world
    fields: dict[str, Any]
    envs: int = 8


CASES = {
    case.name: case
    for case in (
        Case(
            "ppo",
            ("", "-continuous"),
            40_000,
            {
                **{"gamma": 0.8, "gae_lambda": 0.9, "lr": 5e-3, "length": 16, "minibatch": 64},
                **{"epochs": 4, "width": 16, "log_std": -0.5, "entropy_coef": 0.0},
                **{"normalise_obs": False, "normalise_reward": False, "anneal": True},
            },
        ),
        Case(
            "dqn",
            ("",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "collect": 1, "updates": 1, "width": 32},
                **{"capacity": 4_000, "warmup": 400, "target_period": 25},
                **{"exploration_fraction": 0.5, "exploration_final": 0.1},
            },
        ),
        Case(
            "sac",
            ("", "-continuous"),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05, "alpha": 0.01, "tune_alpha": False},
            },
        ),
        Case(
            "td3",
            ("-continuous",),
            12_000,
            {
                **{"gamma": 0.8, "lr": 3e-3, "batch": 64, "width": 32, "capacity": 4_000},
                **{"warmup": 400, "tau": 0.05},
            },
        ),
    )
}
