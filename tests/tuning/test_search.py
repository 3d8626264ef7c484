"""Searchers by themselves: random search, rungs, ASHA's promotions, objectives."""

import math

import numpy as np
import pytest

from sterling.tuning import search_space, trial_objective
from sterling.tuning.searchers.searchers import (
    RandomSearch,
    lower_bound_score,
    mean_score,
    random_generator,
)
from sterling.tuning.searchers.successive_halving import ASHA, SuccessiveHalving, rung_budgets
from sterling.types import Mistake

SPACE = search_space.read_space("ppo", {"lr": "1e-5..1e-2:log", "clip": "0.1..0.4"})
COST = {"steps": 1, "seconds": 1.0}


def drain(searcher):
    jobs = []
    while (job := searcher.ask()) is not None:
        jobs.append(job)
    return jobs


def test_random_search_is_a_function_of_its_key():
    fields = [[job.fields for job in drain(RandomSearch(SPACE, key, 5, 100))] for key in (0, 0, 1)]
    assert fields[0] == fields[1]
    assert fields[0] != fields[2]
    assert len({str(each) for each in fields[0]}) == 5
    more = [job.fields for job in drain(RandomSearch(SPACE, 0, 8, 100))]
    assert more[:5] == fields[0]  # more trials do not change the first


def test_search_incumbent_is_the_best_and_the_oldest_of_equals():
    searcher = RandomSearch(SPACE, 0, 4, 100)
    jobs = drain(searcher)
    for job, scores in zip(jobs, [(1.0, 3.0), (2.0, 4.0), (3.0, 3.0), (9.0, None)], strict=True):
        searcher.tell(job.id, scores, COST)
    best = searcher.best()
    assert (best.trial, best.score, best.scores) == (1, 3.0, (2.0, 4.0))
    assert best.plan == ((0, 100, jobs[1].fields),)


def test_trial_score_over_seeds_is_mean_or_lower_bound():
    assert mean_score((1.0, 2.0, 6.0)) == 3.0
    assert mean_score((1.0, None)) == mean_score((1.0, math.nan)) == -math.inf
    spread = np.std([1.0, 2.0, 6.0], ddof=1) / math.sqrt(3)
    assert lower_bound_score((1.0, 2.0, 6.0)) == pytest.approx(3.0 - spread)


def test_trial_objectives_of_one_seed_match_hand_values():
    rows = [float(x) for x in range(100)]
    assert trial_objective.score_seed("last", rows, 100, False) == np.mean([92, 93, 94, 95, 96, 97])
    assert trial_objective.score_seed("area", rows, 100, False) == 49.5
    assert trial_objective.score_seed("last", rows[:30], 100, False) == np.mean(
        [22, 23, 24, 25, 26, 27]
    )
    gaps = [*rows[:-2], None, None]
    assert trial_objective.score_seed("last", gaps, 100, False) == np.mean([92, 93, 94, 95])
    assert trial_objective.score_seed("last", [*rows, *[None] * 20], 100, False) == 99.0
    assert trial_objective.score_seed("last", [3.0, 1.0, 2.0], 100, True) == 1.0
    assert trial_objective.score_seed("last", [None], 100, False) is None
    with pytest.raises(Mistake, match="did you mean last"):
        trial_objective.check_objective("lst")


def test_successive_halving_rung_budgets_match_hand_values():
    assert rung_budgets(900, 100, 3) == [100, 300, 900]
    assert rung_budgets(900, 101, 3) == [300, 900]
    assert rung_budgets(64, 1, 4) == [1, 4, 16, 64]
    with pytest.raises(Mistake, match="eta of 2 or more"):
        rung_budgets(100, 0, 3)


def test_halving_by_hand():
    """Nine trials whose score is their number: the best three, then the best one, go on."""
    searcher = SuccessiveHalving(SPACE, 0, 9, 900)
    seen = []
    while wave := drain(searcher):
        seen.append([(job.trial, job.start, job.stop, job.kept) for job in wave])
        for job in wave:
            searcher.tell(job.id, (float(job.trial),), COST)
    assert seen[0] == [(trial, 0, 100, True) for trial in range(9)]
    assert seen[1] == [(6, 100, 300, True), (7, 100, 300, True), (8, 100, 300, True)]
    assert seen[2] == [(8, 300, 900, False)]
    assert len(seen) == 3
    best = searcher.best()
    assert (best.trial, best.plan) == (8, ((0, 900, best.fields),))


def test_asha_by_hand():
    """Eta 2, rungs 25, 50, 100; told one by one (Li 2018, algorithm 2)."""
    searcher = ASHA(SPACE, 0, 5, 100, eta=2, least=25)
    scores = [3.0, 1.0, 5.0, 4.0, 2.0]
    asked = []
    while (job := searcher.ask()) is not None:
        asked.append((job.trial, job.stop))
        searcher.tell(job.id, (scores[job.trial],), COST)
    assert asked == [
        (0, 25), (1, 25),            # of two in the rung, one may go on: trial 0 (3 > 1)
        (0, 50),                     # alone in its rung: floor(1 / 2) = 0 go on
        (2, 25),                     # rung 25: 5 3 1, floor(3 / 2) = 1 goes on: trial 2
        (2, 50), (2, 100),           # rung 50: 5 3: trial 2 goes on at once
        (3, 25),                     # rung 25: 5 4 3 1: the best two are 2 and 3
        (3, 50),                     # rung 50: 5 4 3: only trial 2 may, and has
        (4, 25),                     # rung 25: 5 4 3 2 1: the best two have gone on
    ]  # fmt: skip
    assert searcher.best().trial == 2


@pytest.mark.parametrize("trials", [1, 2, 4, 8, 9])
def test_asha_brings_one_trial_to_the_full_budget(trials):
    searcher = ASHA(SPACE, 0, trials, 900)
    asked = []
    while wave := drain(searcher):
        asked += [(job.trial, job.start, job.stop) for job in wave]
        for job in wave:
            searcher.tell(job.id, (float(job.trial),), COST)
    assert len(set(asked)) == len(asked)
    assert [(trial, stop) for trial, _, stop in asked if stop == 900] == [(trials - 1, 900)]
    assert searcher.best().plan[-1][1] == 900


def test_asha_search_ends_only_when_all_trials_are_told():
    searcher = ASHA(SPACE, 0, 2, 900, eta=3, least=300)
    first, second = searcher.ask(), searcher.ask()
    assert searcher.ask() is None
    searcher.tell(first.id, (1.0,), COST)
    assert searcher.ask() is None  # the other may be better
    searcher.tell(second.id, (2.0,), COST)
    last = searcher.ask()
    assert (last.trial, last.start, last.stop, last.kept) == (1, 300, 900, False)
    searcher.tell(last.id, (3.0,), COST)
    assert searcher.ask() is None


def test_asha_asks_for_more_trials_while_others_run():
    searcher = ASHA(SPACE, 0, 4, 100, eta=2, least=50)
    first, second = searcher.ask(), searcher.ask()
    searcher.tell(first.id, (1.0,), COST)
    third = searcher.ask()  # nothing to promote yet, so a new one begins
    assert (third.trial, third.stop) == (2, 50)
    searcher.tell(second.id, (2.0,), COST)
    assert (searcher.ask().trial, searcher.ask().trial) == (1, 3)  # a promotion, then the last
    assert searcher.ask() is None


def test_searcher_random_generator_is_keyed_by_name_and_count():
    draws = [random_generator(*each).random() for each in ((0, "a", 0), (0, "a", 0), (0, "b", 0))]
    assert draws[0] == draws[1] != draws[2]


def test_optuna_search_is_deterministic_and_improves():
    from sterling.tuning.searchers.optuna_search import OptunaSearch

    mixed = search_space.read_space(
        "ppo", {"lr": "1e-5..1e-2:log", "gamma": "0.9..0.999:1-log", "epochs": "1..9",
                "activation": "tanh|relu"},
    )  # fmt: skip

    def run():
        searcher, asked = OptunaSearch(mixed, 0, 30, 100), []
        while (job := searcher.ask()) is not None:
            asked.append(job.fields)
            score = -abs(math.log10(job.fields["lr"]) + 3.0)
            searcher.tell(job.id, (score, None if job.id == 3 else score), COST)
        return asked, searcher.best()

    (asked, best), (again, _) = run(), run()
    assert asked == again
    assert all(0.9 <= each["gamma"] <= 0.999 and each["epochs"] in range(1, 10) for each in asked)
    assert abs(math.log10(best.fields["lr"]) + 3.0) < 0.3
    late = np.mean([abs(math.log10(each["lr"]) + 3.0) for each in asked[-10:]])
    early = np.mean([abs(math.log10(each["lr"]) + 3.0) for each in asked[:10]])
    assert late < early
