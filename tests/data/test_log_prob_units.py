"""Densities of logged actions: in the file's units on disk, in an agent's when they are learned
from and judged by."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.data import Dataset, concatenate
from sterling.data.device_dataset import to_device
from sterling.data.episode_columns import Block
from sterling.evaluation import estimate_policy_value

EPISODES, STEPS = 40, 10


class Uniform(eqx.Module):
    """Every action in [-1, 1] alike."""

    has_log_prob = True

    def sample(self, obs, key):
        return jnp.zeros((obs.shape[0], 1))

    def log_prob(self, obs, action):
        return jnp.full(obs.shape[0], -jnp.log(2.0))


def flat(path, **more):
    """Anybody's file of uniform actions in [-2, 2], each with density 1/4 and reward 1."""
    random, rows = np.random.default_rng(0), EPISODES * STEPS
    action = random.uniform(-2, 2, (rows, 1)).astype(np.float32)
    action[0], action[1] = -2, 2
    arrays = {
        "observations": random.normal(size=(rows, 3)).astype(np.float32),
        "actions": action,
        "rewards": np.ones(rows, np.float32),
        "terminals": np.arange(rows) % STEPS == STEPS - 1,
        "log_probs": np.full(rows, np.log(0.25), np.float32),
    }
    np.savez(path, **arrays, **more)
    return Dataset(path)


def test_log_prob_is_rescaled_from_file_units_to_agent_units(tmp_path):
    data = flat(tmp_path / "flat.npz")
    assert data.lengths.tolist() == [STEPS] * EPISODES
    for method in ("is", "pdis", "wpdis"):
        found = estimate_policy_value(Uniform(), data, method, gamma=1.0)
        assert found.value == pytest.approx(STEPS, rel=1e-4)
    rows = np.arange(5)
    for record in (data.transitions(rows), to_device(data).transitions(rows)):
        np.testing.assert_allclose(record.extras["log_prob"], np.log(0.5), rtol=1e-6)
    np.testing.assert_allclose(data[0].extras["log_prob"], np.log(0.25))
    assert Dataset(data.save(tmp_path / "saved")).hash == data.hash


def with_columns(data, **more):
    block = next(data.blocks(data.rows))
    arrays = {**block.arrays, **{f"extra/{name}": array for name, array in more.items()}}
    made = Block(arrays, block.lengths, block.sources)
    return Dataset.from_block(made, data.obs_space, data.action_space)


def test_log_prob_of_older_datasets_stays_in_agent_units(build):
    """They hold what was chosen in an agent's units, under another name."""
    data = build([4, 3], [True, False], extras=("log_prob",))
    sample = np.full((7, 2), 1.5, np.float32)
    old, new = with_columns(data, sample=sample), with_columns(data, chosen=2 * sample)
    stored = np.concatenate([one.extras["log_prob"] for one in data])
    for one, added in ((old, 0.0), (new, 2 * np.log(2.0))):
        for record in (one.transitions(), to_device(one).transitions(np.arange(7))):
            np.testing.assert_allclose(record.extras["chosen"], sample)
            np.testing.assert_allclose(record.extras["log_prob"], stored + added, rtol=1e-5)
    both = concatenate([old, new])  # their densities are not of one kind
    assert not [name for name in both.columns if name.startswith("extra/")]


def test_foreign_sample_column_does_not_change_log_prob(tmp_path):
    data = flat(tmp_path / "flat.npz", sample=np.arange(EPISODES * STEPS))
    record = data.transitions(np.arange(5))
    assert np.asarray(record.extras["sample"]).tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(record.extras["log_prob"], np.log(0.5), rtol=1e-6)
