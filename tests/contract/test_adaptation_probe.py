"""In levels that the observation does not show, MAML reaches after adaptation the return that needs
knowledge of the level, and PPO at most that of one action for all levels."""

import numpy as np
import pytest
from cases import CASES

import sterling
from sterling.envs.probes.level_probe import make_level_probe
from sterling.training.evaluation.evaluate_policy import BEFORE
from sterling.training.evaluation.evaluator import Evaluator

EPISODES = 200
ENVS = 16
SHARED = {"adapt_length": 96, "length": 48, "epochs": 5, "lr": 5e-3, "depth": 1, "log_std": -0.5}
SHARED |= {"gamma": 0.8, "gae_lambda": 0.9, "normalise_obs": False}
FIELDS = {
    "levels-hidden": {**SHARED, "inner_lr": 0.5, "width": 16},
    "levels-hidden-continuous": {**SHARED, "inner_lr": 0.02, "width": 64, "anneal": True},
}
ITERATION = (SHARED["adapt_length"] + SHARED["length"]) * ENVS  # steps
BUDGET = {"levels-hidden": 150 * ITERATION, "levels-hidden-continuous": 300 * ITERATION}
NEAR = {"levels-hidden": 0.02, "levels-hidden-continuous": 0.3}  # allowed share of the gap


def evaluated(algorithm, world, steps, fields, envs):
    """Return the returns before and after adaptation, ``(seed,)`` (the same for an algorithm that
    does not adapt), and the best returns in these levels with one action and with the right ones.
    """
    run = sterling.train(
        algorithm, f"probe:{world}", steps=steps, envs=envs, seeds=2, evaluate_episodes=0,
        preset=False, **fields,
    )  # fmt: skip
    found = Evaluator(run.settings, EPISODES)(run.agent)
    best = [make_level_probe(world).best_returns(levels) for levels in found["begun"]]
    before = found.get(BEFORE, found["return"])
    return before.mean(1), found["return"].mean(1), *np.transpose(best)


@pytest.mark.parametrize("world", FIELDS)
def test_maml_after_adaptation_nears_the_best_return_of_each_hidden_level(world):
    before, after, alike, known = evaluated("maml", world, BUDGET[world], FIELDS[world], ENVS)
    assert (before <= alike + 1e-5).all()
    assert (after <= known + 1e-5).all()
    assert (after >= known - NEAR[world] * (known - alike)).all()


@pytest.mark.slow
def test_maml_untrained_initial_parameters_do_not_adapt():
    """It makes one step of the same size from MAML's initial parameters."""
    world = "levels-hidden-continuous"
    _, after, alike, known = evaluated("maml", world, ITERATION, FIELDS[world] | {"lr": 0.0}, ENVS)
    assert (after <= known - 0.7 * (known - alike)).all()


@pytest.mark.parametrize("world", FIELDS)
def test_ppo_stays_below_the_best_single_action_in_hidden_levels(world):
    case = CASES["ppo"]
    _, after, alike, known = evaluated("ppo", world, case.steps, case.fields, case.envs)
    assert (after <= alike + 1e-5).all()
    assert (known - alike > 0.1).all()
