"""PBT's decisions and PB2's equations, without any training."""

import math

import numpy as np
import pytest

from sterling.tuning import search_space
from sterling.tuning.searchers.pb2 import (
    BanditExplorer,
    GaussianProcess,
    _maximise_bound,
    kernel,
    negative_log_likelihood,
)
from sterling.tuning.searchers.population_training import PerturbExplorer, Population
from sterling.tuning.searchers.searchers import random_generator
from sterling.types import Mistake

SPACE = search_space.read_space("ppo", {"lr": "1e-5..1e-2:log", "gamma": "0.9..0.999:1-log"})
COST = {"steps": 1, "seconds": 1.0}


def generation(searcher):
    jobs = []
    while (job := searcher.ask()) is not None:
        jobs.append(job)
    return jobs


def tell(searcher, jobs, scores):
    for job, score in zip(jobs, scores, strict=True):
        searcher.tell(job.id, (score, score), COST)


def test_population_training_copies_the_best_into_the_worst_only():
    searcher = Population(SPACE, 0, 8, 100, generations=4)
    first = generation(searcher)
    assert [(job.start, job.stop, job.kept, job.origin) for job in first] == [
        (0, 25, True, None)
    ] * 8
    scores = [5.0, 1.0, 8.0, 3.0, 4.0, 2.0, 7.0, 6.0]
    tell(searcher, first, scores)
    second = generation(searcher)
    for job, before in zip(second, first, strict=True):
        assert (job.start, job.stop) == (25, 50)
        if job.trial in (1, 5):  # the worst quarter
            assert job.origin in (2, 6)  # the best quarter
            origin = first[job.origin].fields
            assert job.fields != origin
            for name, value in job.fields.items():
                each = next(d for d in SPACE if d.name == name)
                assert each.low <= value <= each.high
        else:
            assert job.origin is None
            assert job.fields == before.fields


def test_population_training_copies_none_at_equal_scores():
    searcher = Population(SPACE, 0, 4, 100, generations=2)
    tell(searcher, generation(searcher), [1.0] * 4)
    assert [job.origin for job in generation(searcher)] == [None] * 4


def test_population_incumbent_plan_follows_its_line_of_copies():
    searcher = Population(SPACE, 3, 4, 90, generations=3)
    first = generation(searcher)
    tell(searcher, first, [1.0, 2.0, 3.0, 4.0])
    second = generation(searcher)
    assert second[0].origin == 3
    tell(searcher, second, [9.0, 2.0, 3.0, 4.0])  # the copy is now the best
    third = generation(searcher)
    assert third[1].origin == 0
    tell(searcher, third, [5.0, 9.0, 3.0, 4.0])
    best = searcher.best()
    assert best.trial == 1
    assert best.plan == (
        (0, 30, first[3].fields), (30, 60, second[0].fields), (60, 90, third[1].fields)
    )  # fmt: skip


@pytest.mark.parametrize("explore", [None, BanditExplorer])
def test_population_training_keeps_options_within_their_set(explore):
    few = search_space.read_space("ppo", {"lr": "1e-4|3e-4|1e-3", "clip": "0.1|0.2"})
    searcher = Population(few, 0, 8, 60, generations=6, explore=explore and explore())
    seen = set()
    while jobs := generation(searcher):
        seen |= {(job.fields["lr"], job.fields["clip"]) for job in jobs}
        tell(searcher, jobs, [float(job.trial) for job in jobs])
    assert seen <= {(lr, clip) for lr in (1e-4, 3e-4, 1e-3) for clip in (0.1, 0.2)}


def test_population_perturbation_resamples_a_quarter_of_the_time():
    fields = {"lr": 1e-3, "gamma": 0.99}
    made = [
        PerturbExplorer().propose(
            SPACE, random_generator(0, "t", i), fields, time=1, score=0.0, pending=[]
        )
        for i in range(2000)
    ]
    factors = np.array([each["lr"] / 1e-3 for each in made])
    low, high = np.isclose(factors, 0.8).mean(), np.isclose(factors, 1.2).mean()
    assert low == pytest.approx(0.375, abs=0.04)
    assert high == pytest.approx(0.375, abs=0.04)


def test_population_training_refuses_invalid_sizes():
    for options in ({"generations": 200}, {"quantile": 0.6}):
        with pytest.raises(Mistake, match="a population needs"):
            Population(SPACE, 0, 4, 100, **options)
    with pytest.raises(Mistake, match="at least 2 trials"):
        Population(SPACE, 0, 1, 100)


def test_pb2_kernel_matches_hand_values():
    a = np.array([[0.0, 0.5, 0.2], [3.0, 0.1, 0.9]])
    found = kernel(a, a, length=0.5, forget=0.19)
    distance = 0.4**2 + 0.7**2
    assert np.diag(found).tolist() == [1.0, 1.0]
    assert found[0, 1] == found[1, 0]
    assert found[0, 1] == pytest.approx(math.exp(-0.5 * distance / 0.25) * 0.81**1.5)


def test_pb2_gaussian_process_posterior_matches_hand_values():
    """mean = k y / (1 + s), variance = 1 - k^2 / (1 + s)."""
    seen, y, noise = np.array([[0.0, 0.0, 0.0]]), np.array([2.0]), 0.5
    model = GaussianProcess(seen, y, np.array([math.log(0.7), math.log(noise), 0.36]))
    row = np.array([[2.0, 0.0, 0.7]])
    k = math.exp(-0.5) * 0.64
    assert model.mean(row)[0] == pytest.approx(k * 2.0 / 1.5)
    nothing = np.zeros((0, 3))
    assert model.deviation(row, nothing)[0] == pytest.approx(math.sqrt(1 - k**2 / 1.5))
    again = model.deviation(row, row)[0]  # a pending point is no longer uncertain
    assert again < model.deviation(row, nothing)[0]
    assert model.mean(row)[0] == pytest.approx(k * 2.0 / 1.5)  # and changes no mean


def test_pb2_likelihood_equals_the_normal_density():
    from scipy.stats import multivariate_normal

    draw = np.random.default_rng(0)
    seen, y = draw.random((6, 4)), draw.normal(size=6)
    theta = np.array([math.log(0.4), math.log(0.2), 0.3])
    covariance = kernel(seen, seen, 0.4, 0.3) + 0.2 * np.eye(6)
    density = multivariate_normal(np.zeros(6), covariance).logpdf(y)
    constant = 0.5 * 6 * math.log(2 * math.pi)
    assert negative_log_likelihood(theta, seen, y) == pytest.approx(-density - constant)


def observed(peak, count=40, noise=0.02):
    draw = np.random.default_rng(1)
    bandit = BanditExplorer()
    for i in range(count):
        fields = SPACE.fields(draw.random(2))
        x = SPACE.point(fields)
        change = -8.0 * np.square(x - peak).sum() + draw.normal() * noise
        bandit.note(i // 10, 0.5, fields, 0.5 + change)
    return bandit


def test_pb2_proposes_where_the_known_gain_is_largest():
    peak = np.array([0.7, 0.3])
    bandit = observed(peak)
    fields = SPACE.fields(np.array([0.1, 0.9]))
    made = bandit.propose(SPACE, random_generator(0, "t", 0), fields, time=4, score=0.5, pending=[])
    assert np.abs(SPACE.point(made) - peak).max() < 0.12
    again = observed(peak).propose(
        SPACE, random_generator(0, "t", 0), fields, time=4, score=0.5, pending=[]
    )
    assert made == again


def test_pb2_avoids_places_of_pending_trials():
    """Of two equally promising places the one that is not taken."""
    model = GaussianProcess(
        np.array([[0.0, 0.5, 0.25], [0.0, 0.5, 0.75], [0.0, 0.5, 0.5]]),
        np.array([1.0, 1.0, -1.0]),
        np.array([math.log(0.1), math.log(1e-2), 0.0]),
    )
    context = np.array([0.0, 0.5])
    for taken, free in ((0.3, 0.5), (0.7, -0.5)):
        pending = np.array([[0.0, 0.5, taken]] * 3)
        x = _maximise_bound(model, context, pending, 1, np.random.default_rng(0))
        assert (x[0] - 0.5) * free > 0


def test_pb2_without_observations_perturbs():
    fields = {"lr": 1e-3, "gamma": 0.99}
    draws = [random_generator(0, "t", 0) for _ in range(2)]
    found = BanditExplorer().propose(SPACE, draws[0], fields, time=1, score=0.0, pending=[])
    assert found == PerturbExplorer().propose(
        SPACE, draws[1], fields, time=1, score=0.0, pending=[]
    )
