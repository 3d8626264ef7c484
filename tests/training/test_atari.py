"""Learning from Atari's pictures, which EnvPool's worlds hand over stacked."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import sterling
from sterling.data import Dataset
from sterling.data.dataset_metadata import Facts
from sterling.data.episode_columns import Block
from sterling.data.recording import stored_episodes
from sterling.data_generation import expert_training, policy_rollouts
from sterling.training.assembly import build_run, run_dataset
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.fields.presets import load_preset
from sterling.training.phases.phase_sequence import total_iterations

SMALL = {
    "ppo": {"envs": 2, "length": 8, "minibatch": 8, "epochs": 1, "width": 16},
    "dqn": {"envs": 1, "warmup": 16, "collect": 4, "learn": 1, "batch": 4, "capacity": 64},
}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", SMALL)
def test_atari_pong_trains_through_envpool(algorithm):
    """Whole iterations, by the compiled program: every leaf of a run has memory of its own."""
    run = sterling.train(algorithm, "Pong-v5", steps=48, seeds=1, evaluate_episodes=0,
                         preset=False, **SMALL[algorithm])  # fmt: skip
    assert run.result["steps"] == 48
    assert not run.result["failed_seeds"]


def test_ppo_preset_applies_to_every_atari_game():
    game = load_preset("ppo", "Breakout-v5")
    assert game == load_preset("ppo", "envpool:Pong-v5")
    assert (game["envs"], game["length"], game["clip"]) == (8, 128, 0.1)
    assert load_preset("ppo", "HalfCheetah-v4") == {}


@pytest.mark.parametrize(
    ("algorithm", "fields", "found"),
    [
        ("ppo", {"length": 150}, (policy_rollouts, "concatenate_records")),
        pytest.param("dqn", {"warmup": 300, "capacity": 512},
                     (expert_training, "_newest_replay_rows"), marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_recorded_atari_dataset_has_unclipped_rewards(algorithm, fields, found, monkeypatch):
    """The learner is told their sign, and remembers nothing else."""
    fields = {**SMALL[algorithm], **fields, **({"minibatch": 300} if algorithm == "ppo" else {})}
    envs = fields.pop("envs")
    settings = resolve_settings(
        algorithm, "MsPacman-v5", steps=304, envs=envs, preset=False, fields=fields
    )
    told, original = [], getattr(*found)
    monkeypatch.setattr(*found, lambda *given: told.append(original(*given)) or told[-1])
    trained = object.__new__(expert_training.TrainedAgents)  # only how, not what was learned
    object.__setattr__(trained, "settings", settings)
    rows, world = expert_training.repeat_training(trained, total_iterations(settings), 1000, print)
    block = stored_episodes.rows_to_block(rows, world, 1000, 0)
    world.close()
    assert rows.reward.max() >= 10
    np.testing.assert_array_equal(np.sign(rows.reward), told[0].reward)
    assert block.arrays["reward"].sum() == rows.reward.sum()


def test_atari_dataset_rewards_are_clipped_when_mixed_with_online_data(tmp_path):
    pictures = np.zeros((6, 4, 84, 84), np.uint8)
    columns = {
        "obs": pictures,
        "action": np.zeros(4, np.int64),
        "reward": np.array([0.0, 400.0, -3.0, 10.0], np.float32),
        "discount": np.ones(4, np.float32),
    }
    box, facts = spaces.Box(0, 255, (4, 84, 84), np.uint8), Facts("Pong-v5")
    block = Block(columns, np.array([2, 2]), np.zeros(2, np.int32))
    Dataset.from_block(block, box, spaces.Discrete(6), facts).save(tmp_path / "log")

    def told(**budget):
        book = run_dataset.make_log_settings(tmp_path / "log", share=0.5)
        fields = {name: value for name, value in SMALL["dqn"].items() if name != "envs"}
        few = {"updates": 4, "envs": 1, "data": book, "preset": False, "fields": fields}
        settings = resolve_settings("dqn", "Pong-v5", **{**few, **budget})
        log = build_run.checked_problem_spec(settings).log
        return run_dataset.read_log_in_world(book).transitions().reward.tolist(), log.returns

    assert told(steps=48) == ([0.0, 1.0, -1.0, 1.0], (0.0, 1.0))
    assert told() == ([0.0, 400.0, -3.0, 10.0], (7.0, 400.0))
    raw = {"reward_clip": False}
    assert told(steps=48, env_options=raw) == ([0.0, 400.0, -3.0, 10.0], (7.0, 400.0))
