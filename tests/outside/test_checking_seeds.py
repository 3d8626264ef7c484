"""`sterling check` tells dependence on the seeds beside one from rounding of one seed alone."""

import types

import numpy as np
import pytest

from sterling.checking import training_checks
from sterling.checking.review_findings import CheckFailed
from sterling.checking.state_differences import state_difference

BUDGET, BEGUN = 9, 2  # steps of a short run, and of one with the first updates alone
GROWN = 30.0  # what updates make of the rounding of one seed alone, as a share of the numbers


def if_alone(size):
    """Change the weights of one seed alone."""
    return lambda place, seeds: size if len(seeds) == 1 else 0.0


def with_leak(leak):
    """Change the weights of one seed alone, and all by a small part of what leaks."""
    return lambda place, seeds: if_alone(GROWN)(place, seeds) + 1e-6 * leak(place, seeds)


ROUNDED = if_alone(1e-7)


def runs_of_seeds(factor, early=ROUNDED, counted=lambda seeds: 0):
    """Runs in which ``factor(place, seeds)`` changes the weights of seed 1, ``early`` those after
    the first updates, and ``counted(seeds)`` its count after more of them."""
    trained = []

    def train_short(budget, seeds, strategy):
        assert strategy == "map"
        trained.append((budget, seeds))
        place, changed = seeds.index(1), {BUDGET: factor, BEGUN: early}[budget]
        state = {
            "count": np.zeros((len(seeds), 2), np.int32),
            "weight": np.zeros((len(seeds), 2), np.float32),
        }
        state["count"][place] = 1_000_000 + (counted(seeds) if budget == BUDGET else 0)
        state["weight"][place] = np.array([0.5, 2.0]) * (1 + changed(place, seeds))
        return types.SimpleNamespace(agent=types.SimpleNamespace(state=state))

    problem = types.SimpleNamespace(
        budget="steps",
        short_run=lambda: BUDGET,
        first_updates=lambda: BEGUN,
        late_feed=lambda: "",
    )
    return types.SimpleNamespace(problem=problem, train_short=train_short, trained=trained)


BESIDE = "bit for bit beside other seeds, after 9 steps; alone"


@pytest.mark.parametrize(
    ("factor", "flags", "said", "runs"),
    [
        (if_alone(0.0), "", "bit for bit, after 9 steps", 2),
        (if_alone(1e-7), "--a=b", "but for rounding, after 9 steps", 2),
        (if_alone(1e-7), "", BESIDE, 5),
        (if_alone(GROWN), "", BESIDE, 5),
        (if_alone(GROWN), "--a=b", BESIDE, 5),
        (with_leak(lambda _, seeds: len(seeds)), "--a=b", "but for rounding (['weight'] by", 5),
    ],
    ids=["equal", "flags", "rounding of one", "grown", "flags and grown", "flags of three"],
)
def test_a_seed_alone_may_differ_by_rounding_alone(monkeypatch, factor, flags, said, runs):
    """More is trained only where one alone is not equal."""
    monkeypatch.setenv("XLA_FLAGS", flags)
    checked = runs_of_seeds(factor)
    found = training_checks._check_seed_alone(checked)
    assert found.startswith(said)
    assert ("alone XLA rounds it otherwise: after 2 steps ['weight'] by" in found) == (runs == 5)
    assert len(checked.trained) == runs


@pytest.mark.parametrize("flags", ["", "--a=b"])
@pytest.mark.parametrize(
    "parts",
    [
        {"factor": if_alone(GROWN), "early": if_alone(2e-4)},
        {"factor": if_alone(np.nan)},
        {"factor": if_alone(1e-7), "counted": lambda seeds: len(seeds) == 1},
        {"factor": if_alone(GROWN), "counted": lambda seeds: len(seeds) == 3},
        {"factor": lambda place, seeds: 1e-3 * len(seeds)},
    ],
    ids=["more than rounding", "nan", "counts", "counts beside others", "number of seeds"],
)
def test_a_seed_that_depends_on_those_beside_it_fails(monkeypatch, parts, flags):
    monkeypatch.setenv("XLA_FLAGS", flags)
    with pytest.raises(CheckFailed, match=r"seed 1 differs .*: \['\w+'\] by .* relative") as wrong:
        training_checks._check_seed_alone(runs_of_seeds(**parts))
    assert ("XLA_FLAGS" in wrong.value.remedy) == bool(flags)


@pytest.mark.parametrize(
    "leak",
    [
        lambda place, seeds: sum(seeds),
        lambda place, seeds: seeds[0],
        lambda place, seeds: seeds[-1],
        lambda place, seeds: seeds[place - 1],
        lambda place, seeds: seeds[(place + 1) % len(seeds)],
        lambda place, seeds: place,
        lambda place, seeds: len(seeds),
    ],
    ids=["all", "first", "last", "before", "after", "place", "number"],
)
def test_a_small_leak_between_seeds_is_not_taken_for_rounding(monkeypatch, leak):
    """It is far smaller than the rounding of one seed alone."""
    monkeypatch.setenv("XLA_FLAGS", "")
    with pytest.raises(CheckFailed, match=r"seed 1 differs when seeds 2 and 3 .* in place of seed"):
        training_checks._check_seed_alone(runs_of_seeds(with_leak(leak)))


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_a_number_that_is_finite_in_one_state_alone_is_no_rounding(odd):
    """Wherever it stands; the same one in both states is no difference."""
    near, fine, broken = np.float32([1.0, 1 + 1e-6]), np.float32([1, 2]), np.float32([1, odd])
    for one, other in ((fine, broken), (broken, fine)):
        apart = state_difference({"a": near, "b": one}, {"a": near[::-1], "b": other})
        assert apart.leaf == "['b']"
        assert not apart.is_within(1e9)
        assert np.isinf(apart.size)
    both = state_difference([np.append(near, odd)], [np.append(near[::-1], odd)])
    assert both.is_within(1e-5)
