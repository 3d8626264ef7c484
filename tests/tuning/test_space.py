"""Ranges as text: scales, whole numbers, choices, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterling import algorithms
from sterling.algorithms import ALGORITHMS
from sterling.commands.options.algorithm_options import is_language_algorithm
from sterling.tuning import search_space
from sterling.tuning.search_space import Dimension, Space
from sterling.tuning.searchers.population_training import perturb
from sterling.types import Mistake


def one(name="lr", text="1e-4..1e-2:log", algorithm="ppo"):
    return search_space.read_space(algorithm, {name: text}).dimensions[0]


def test_search_space_log_range_has_the_geometric_mean_in_the_middle():
    assert one().value(0.5) == pytest.approx(1e-3)
    assert one(text="1e-4..1e-2").value(0.5) == pytest.approx(0.00505)


def test_search_space_discount_range_is_logarithmic_in_one_minus_gamma():
    gamma = one("gamma", "0.9..0.999:1-log")
    assert gamma.value(0.5) == pytest.approx(0.99)
    assert (gamma.value(0.0), gamma.value(1.0)) == pytest.approx((0.9, 0.999))


def test_search_space_integers_are_uniform_and_reach_both_ends():
    epochs = one("epochs", "1..4")
    values = [epochs.value(unit) for unit in np.linspace(0, 0.9999, 4000)]
    assert all(isinstance(value, int) for value in values)
    assert np.bincount(values).tolist() == pytest.approx([0, 1000, 1000, 1000, 1000], abs=2)


def test_search_space_options_are_uniform_and_keep_their_types():
    chosen = one("clip_value", "true|false")
    assert [chosen.value(u) for u in (0.0, 0.49, 0.5, 1.0)] == [True, True, False, False]
    kl = one("target_kl", "none|0.02")
    assert kl.options == (None, 0.02)


@given(st.floats(0.0, 1.0))
def test_search_space_unit_and_value_are_inverse(unit):
    for text, name in (("1e-5..1:log", "lr"), ("-1..1", "log_std"), ("0.9..0.999:1-log", "gamma")):
        each = one(name, text)
        assert each.unit(each.value(unit)) == pytest.approx(unit, abs=1e-9)
    for each in (one("epochs", "1..20:log"), one("activation", "tanh|relu|elu")):
        value = each.value(unit)
        assert each.value(each.unit(value)) == value


def test_perturbation_multiplies_and_stays_inside_the_range():
    assert perturb(one(), 1e-3, 1.2) == pytest.approx(1.2e-3)
    assert perturb(one(), 9e-3, 1.2) == 1e-2
    gamma = one("gamma", "0.9..0.999:1-log")
    assert perturb(gamma, 0.99, 0.8) == pytest.approx(0.992)
    assert perturb(one("log_std", "-1..1"), 0.0, 1.2) == pytest.approx(0.4)


def test_perturbation_of_options_takes_the_neighbour_by_size():
    lr = one(text="1e-3|1e-4|3e-4")
    assert [perturb(lr, value, 1.2) for value in (1e-4, 3e-4, 1e-3)] == [3e-4, 1e-3, 1e-3]
    assert [perturb(lr, value, 0.8) for value in (1e-4, 3e-4, 1e-3)] == [1e-4, 1e-4, 3e-4]
    words = one("activation", "tanh|relu|elu")
    assert (perturb(words, "relu", 0.8), perturb(words, "relu", 1.2)) == ("tanh", "elu")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("learning_rate", "1..2", "no field 'learning_rate' to search: it is called lr here"),
        ("lr", "1e-2..1e-4", "lower end"),
        ("lr", "0..1:log", "begins above 0"),
        ("lr", "1e-4..1:logg", "unknown scale 'logg'; did you mean log"),
        ("gamma", "0.9..1:1-log", "below 1"),
        ("epochs", "1..2.5", "whole numbers"),
        ("activation", "1..2", "activation=A|B"),
        ("lr", "a..b", "not a range"),
        ("lr", "0.1", "two different options"),
    ],
)
def test_search_space_refuses_a_wrong_range(name, text, words):
    with pytest.raises(Mistake, match=words.replace("|", r"\|")) as caught:
        one(name, text)
    assert "\n" not in str(caught.value)


def test_search_space_refuses_a_pair_without_a_range():
    assert search_space.parse_ranges(["max-grad-norm=1..2"]) == {"max_grad_norm": "1..2"}
    with pytest.raises(Mistake, match="NAME=LOW"):
        search_space.parse_ranges(["lr"])


def test_a_space_survives_json():
    made = search_space.read_space(
        "ppo", {"lr": "1e-5..1:log", "epochs": [1, 2], "target_kl": "none|0.1"}
    )
    assert Space.from_json(made.to_json()) == made


def test_search_space_of_every_algorithm_surrounds_its_defaults():
    names = [name for name in ALGORITHMS if not is_language_algorithm(name)]
    wrong = [
        f"{name}: {each}"
        for name in names
        for each in search_space.read_space(name)
        if not is_around(each, algorithms.find(name).Config())
    ]
    assert not wrong


def is_around(each, usual):
    """Whether a dimension is one of floats and the usual settings are within it."""
    if not isinstance(each, Dimension) or each.kind != "float":
        return False
    value = getattr(usual, each.name)
    within = each.low <= value <= each.high or (each.name, value) == ("entropy_coef", 0.0)
    return within and math.isfinite(each.value(0.3))


def test_all_unknown_fields_of_a_space_are_told_in_one_message():
    with pytest.raises(Mistake) as told:
        search_space.read_space("ppo", {"learning_rate": "1..2", "n_epochs": "1..9", "lr": "1..2"})
    assert str(told.value) == (
        "ppo has no field 'learning_rate' to search: it is called lr here. Write lr=1..2; "
        "ppo has no field 'n_epochs' to search: it is called epochs here. Write epochs=1..9"
    )
