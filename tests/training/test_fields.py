"""What a run is asked for is checked before anything is built: fields, seeds, options."""

import dataclasses
import math

import numpy as np
import pytest

from sterling import algorithms
from sterling.config_class import field_rules
from sterling.field_types import Activation
from sterling.nets.mlp import ACTIVATIONS
from sterling.training.config import stored_settings
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.run_options import LanguageSettings
from sterling.training.fields import config_fields
from sterling.training.phases.phase_options import parse_phases
from sterling.types import Mistake


def test_every_numeric_config_field_declares_its_allowed_range():
    for name in algorithms.ALGORITHMS:
        module = algorithms.find(name)
        rules = field_rules(module.Config)
        for field in dataclasses.fields(module.Config):
            if str(field.type).split(" | ")[0] in ("int", "float"):
                assert field.name in rules, (name, field.name)
        config_fields.make_config(module, dataclasses.asdict(module.Config()), name)


def test_every_part_of_stored_settings_can_be_read():
    for made in stored_settings.NESTED_SETTINGS.values():
        for field in dataclasses.fields(made):
            assert str(field.type) in stored_settings.FIELD_TYPES, (made, field.name)
    spoken = dataclasses.asdict(LanguageSettings(agent="x", failed_reward=-1.0))
    stored_settings.check_config_json({"speech": spoken})
    with pytest.raises(Mistake, match=r"speech\.failed_reward must be a number, or null"):
        stored_settings.check_config_json({"speech": spoken | {"failed_reward": "low"}})


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


def test_all_unknown_fields_are_told_in_one_message_with_the_nearest_names():
    said = "no field 'lrr'; did you mean lr.*; ppo has no field 'wdth'; did you mean width"
    with pytest.raises(Mistake, match=said):
        config_fields.make_config(algorithms.find("ppo"), {"lrr": 1, "gamma": 9, "wdth": 2}, "ppo")


def test_config_fields_without_upper_limit_accept_infinity():
    config = config_fields.make_config(
        algorithms.find("ppo"), {"target_kl": math.inf, "max_grad_norm": math.inf}, "ppo"
    )
    assert config.target_kl == config.max_grad_norm == math.inf


@pytest.mark.parametrize(
    ("algorithm", "fields", "wanted"),
    [
        ("grpo", {"kl_coef": 0.04}, r"grpo: kl_coef=0.04 has no effect with kl=none. Add kl=k3 \("),
        ("grpo", {"kl_coef": "linear:0.1:0"}, "kl_coef=.*no effect with kl=none"),
        ("dapo", {"kl_in": "reward"}, "kl_in=reward has no effect with kl=none"),
        ("gspo", {"reset": 64}, "reset=64 has no effect with kl=none"),
        ("grpo", {"dual": 2.0}, "dual=2.0 has no effect with rule=clip. Add rule=dual"),
        ("reinforce", {"low": 0.1}, "low=0.1 has no effect with rule=reinforce"),
        ("grpo", {"cap": 3.0}, "cap=3.0 has no effect with decoupled=False"),
        ("grpo", {"value_lr": 1e-3}, "value_lr=0.001 has no effect with baseline=mean"),
        (
            "grpo",
            {"gamma": 0.9},
            "no effect with turns=0, baseline=mean, scale=group",
        ),
        ("dpo", {"margin": 1.0}, "margin=1.0 has no effect with loss=dpo. Add loss=simpo"),
        ("dqn", {"correction": 0.4}, "correction=0.4 has no effect with priority=None"),
        ("dqn", {"horizon_updates": 9}, "no effect with n_step_final=0, gamma_initial=None"),
        ("r2d2", {"priority": None, "eta": 0.5}, "eta=0.5 has no effect with priority=None"),
        ("sac", {"tune_alpha": False, "target_entropy": -1.0}, "no effect with tune_alpha=False"),
        ("drq-v2", {"shift": 0, "subpixel": False}, "subpixel=False has no effect with shift=0"),
    ],
)
def test_field_of_a_part_that_is_off_is_refused_with_the_field_that_switches_it_on(
    algorithm, fields, wanted
):
    with pytest.raises(Mistake, match=wanted) as caught:
        resolve_settings(algorithm, "reverse-text", updates=1, steps=10, fields=fields)
    assert "\n" not in str(caught.value)


def test_field_of_a_part_that_is_on_or_that_asks_for_nothing_is_accepted():
    for fields in ({"kl": "k3", "kl_coef": 0.1}, {"kl_coef": 0.0, "reset": 0}, {"low": 0.1}):
        assert resolve_settings("grpo", "reverse-text", updates=1, fields=fields)
    for name in ("rloo", "reinforce++"):  # whose presets have a KL
        assert resolve_settings(name, "reverse-text", updates=1, fields={"kl_coef": 0.1})
    rainbow = resolve_settings("rainbow", "CartPole-v1", steps=50_000, fields={"correction": 0.6})
    assert rainbow.config.correction == 0.6
    both = {"tune_alpha": False, "target_entropy": None}
    assert resolve_settings("sac", "Pendulum-v1", steps=50_000, fields=both)


def test_field_without_effect_in_a_further_phase_is_refused_with_the_phase():
    then = parse_phases("steps=50_000 correction=0.9")
    with pytest.raises(Mistake, match=r"phase 2: dqn: correction=0\.9 has no effect"):
        resolve_settings("dqn", "CartPole-v1", steps=50_000, phases=then)


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
