"""Learning from Atari's pictures, which EnvPool's worlds hand over stacked."""

from __future__ import annotations

import pytest

import sterling
from sterling.training.settings import presets

SMALL = {
    "ppo": {"envs": 2, "length": 8, "minibatch": 8, "epochs": 1, "width": 16},
    "dqn": {"envs": 1, "warmup": 16, "collect": 4, "learn": 1, "batch": 4, "capacity": 64},
}


@pytest.mark.parametrize("algorithm", SMALL)
def test_pong_is_learned_from(algorithm):
    """Whole iterations, by the compiled program: every leaf of a run has memory of its own."""
    run = sterling.train(algorithm, "Pong-v5", steps=48, seeds=1, evaluate_episodes=0,
                         preset=False, **SMALL[algorithm])  # fmt: skip
    assert run.result["steps"] == 48
    assert not run.result["failed_seeds"]


def test_every_game_has_the_settings_of_atari():
    game = presets("ppo", "Breakout-v5")
    assert game == presets("ppo", "envpool:Pong-v5")
    assert (game["envs"], game["length"], game["clip"]) == (8, 128, 0.1)
    assert presets("ppo", "HalfCheetah-v4") == {}
