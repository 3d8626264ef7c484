"""What a run is asked for is checked before anything is built: fields, seeds, options."""

import dataclasses
import math

import numpy as np
import pytest

from sterling import algorithms
from sterling.config_class import field_rules
from sterling.field_types import Activation
from sterling.nets.mlp import ACTIVATIONS
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.fields import config_fields
from sterling.types import Mistake


def test_every_numeric_config_field_declares_its_allowed_range():
    for name in algorithms.ALGORITHMS:
        module = algorithms.find(name)
        rules = field_rules(module.Config)
        for field in dataclasses.fields(module.Config):
            if str(field.type).split(" | ")[0] in ("int", "float"):
                assert field.name in rules, (name, field.name)
        config_fields.make_config(module, dataclasses.asdict(module.Config()), name)


@pytest.mark.parametrize(
    ("algorithm", "field", "value", "wanted"),
    [
        ("ppo", "lr", -1.0, "0 or more"),
        ("ppo", "epochs", 0, "at least 1"),
        ("ppo", "length", 0, "at least 1"),
        ("ppo", "gamma", 1.5, "between 0 and 1"),
        ("ppo", "target_kl", math.nan, "a finite number"),
        ("ppo", "target_kl", "small", "of type float"),
        ("ppo", "lr", math.inf, "a finite number"),
        ("dqn", "n_step", 0, "at least 1"),
        ("dqn", "target_period", 0, "at least 1"),
        ("sac", "warmup", -5, "0 or more"),
        ("iql", "expectile", 1.0, "above 0 and below 1"),
        ("iql", "depth", 1_001, "at most 1,000"),
        ("td3", "noise_clip", -0.1, "0 or more"),
        ("ppo", "log_std", math.inf, "a finite number"),
        ("grpo", "temperature", 0.0, "above 0"),
        ("grpo", "top_p", 0.0, "above 0 and at most 1"),
    ],
)
def test_config_field_outside_its_range_is_refused_by_name(algorithm, field, value, wanted):
    with pytest.raises(Mistake, match=f"{algorithm}'s field {field} must be {wanted}; got"):
        config_fields.make_config(algorithms.find(algorithm), {field: value}, algorithm)


def test_config_fields_without_upper_limit_accept_infinity():
    config = config_fields.make_config(
        algorithms.find("ppo"), {"target_kl": math.inf, "max_grad_norm": math.inf}, "ppo"
    )
    assert config.target_kl == config.max_grad_norm == math.inf


def test_an_unknown_activation_gets_the_nearest_known():
    with pytest.raises(Mistake, match=r"Unknown activation='tahn'.*tanh"):
        resolve_settings("ppo", "CartPole-v1", steps=10_000, fields={"activation": "tahn"})


def test_activation_field_type_lists_the_mlp_activations():
    assert Activation.__metadata__[0].words == tuple(ACTIVATIONS)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(2, (0, 1)), (np.int64(2), (0, 1)), (2.0, (0, 1)), ([7, 3], (7, 3)), (np.array([5]), (5,))],
)
def test_seeds_option_is_a_count_or_a_list(asked, expected):
    found = config_fields.seed_numbers(asked)
    assert found == expected
    assert all(type(seed) is int for seed in found)


@pytest.mark.parametrize("asked", [0, -1, [], [1, 1], "2", [0.5, 1.5], [2**31, 1], None, 1.5, True])
def test_invalid_seeds_are_refused(asked):
    with pytest.raises(Mistake, match="seed"):
        config_fields.seed_numbers(asked)


@pytest.mark.parametrize("asked", [10_001, range(10_001), 2**31])  # the last is never listed
def test_more_seeds_than_one_run_takes_are_refused(asked):
    assert len(config_fields.seed_numbers(10_000)) == 10_000
    with pytest.raises(Mistake, match="at most 10,000 seeds"):
        config_fields.seed_numbers(asked)


@pytest.mark.parametrize(
    "option",
    [
        {"evaluate_episodes": -3},
        {"evaluate_episodes": "2"},
        {"envs": 2.5},
        {"envs": 0},
        {"log_every": "5"},
        {"checkpoint_minutes": None},
        {"checkpoint_minutes": math.nan},
        {"steps": -1},
    ],
)
def test_run_options_are_validated_before_training(option):
    with pytest.raises(Mistake, match=next(iter(option))):
        resolve_settings("ppo", "CartPole-v1", **{"steps": 100_000, **option})


def test_budgets_may_be_written_as_floats():
    assert resolve_settings("ppo", "CartPole-v1", steps=1e5).steps == 100_000


@pytest.mark.parametrize("environment", ["CartPole-v1", "Breakout-MinAtar", "Pong-v5"])
def test_a_preset_s_minibatch_shrinks_to_the_rollout_of_fewer_environments(environment):
    settings = resolve_settings("ppo", environment, steps=100_000, envs=1)
    assert settings.config.minibatch <= settings.config.length
    chosen = resolve_settings("ppo", environment, steps=100_000, envs=1, fields={"minibatch": 4096})
    assert chosen.config.minibatch == 4096  # refused when the agent is made
