"""Runs with layers around their sources: a seed alone as among others, resumed bit for bit."""

import json

import numpy as np
import pytest
from stopping import Stop, leaves, newest

import sterling

pytestmark = [pytest.mark.as_users, pytest.mark.slow]
ROLLOUTS = {"length": 16, "minibatch": 64, "epochs": 1, "envs": 4, "steps": 16 * 4 * 30}
REPLAYED = {"warmup": 100, "batch": 16, "capacity": 3000, "priority": 0.6, "n_step": 2}
REPLAYED |= {"envs": 2, "steps": 900}
LEVELS = {"sources": "plr:0.3,0.2", "env_options": {"levels": 12}}
UNLIMITED = {"env_options": {"levels": 0}}
RUNS = {
    "ppo": ("ppo", "maze:3x3", ROLLOUTS | LEVELS),
    "robust": ("ppo", "maze:3x3", ROLLOUTS | {"sources": "plr-robust:40,0.5,0.3,0.3"} | UNLIMITED),
    "accel": ("ppo", "maze:3x3", ROLLOUTS | {"sources": "accel:40,0.5,0.3,0.3,2"} | UNLIMITED),
    "dqn": ("dqn", "maze:3x3", REPLAYED | LEVELS),
    "maml": (
        "maml",
        "maze:3x3",
        {"adapt_length": 16, "length": 16, "epochs": 1, "envs": 4, "steps": 32 * 4 * 30},
    ),
    "pool": ("ppo", "tictactoe:self", ROLLOUTS | {"sources": "pool:2,200"}),
    "go-explore": ("dqn", "corridor:6", REPLAYED | {"sources": "go-explore"}),
    "rnd": ("ppo", "corridor:6", ROLLOUTS | {"sources": "rnd"}),
    "icm": ("dqn", "corridor:6", REPLAYED | {"sources": "icm"}),
    "disagreement": ("ppo", "corridor:6", ROLLOUTS | {"sources": "disagreement"}),
    "counts": ("dqn", "corridor:6", REPLAYED | {"sources": "counts"}),
}


def train(name, seeds, **options):
    algorithm, environment, fields = RUNS[name]
    how = {"strategy": "map", "evaluate_episodes": 0, "preset": False, "width": 8, "depth": 1}
    how |= {"log_every": fields["steps"] // 4, **fields, **options}
    return sterling.train(algorithm, environment, seeds=seeds, **how)


@pytest.fixture(scope="module", params=RUNS)
def together(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("levels") / "whole"
    return request.param, path, train(request.param, [0, 1, 2], out=path)


def known(path):
    """What the newest checkpoint holds of levels, of an archive, or of a pool."""
    ends = ("/scores", "source/last", "archive/seen", "archive/start/elapsed")
    ends += (
        "bonus/counts",
        "bonus/optimiser/count",
        "source/lived",
        "state/pool/state/nets/policy/layers/1/bias",
    )
    return {name: each for name, each in newest(path).items() if name.endswith(ends)}


def test_level_sources_save_what_they_found_in_the_run_folder(together):
    name, path, _ = together
    assert json.loads((path / "config.json").read_text())["sources"] == RUNS[name][2].get(
        "sources", ""
    )
    found = known(path)
    if name == "maml":  # only a tally carries over from one iteration to the next
        assert not found
        return
    if name == "pool":
        lived, pool = sorted(found.values(), key=np.ndim)
        assert lived.tolist() == [RUNS[name][2]["steps"]] * 3
        assert (pool[:, 0] != pool[:, 1]).any(1).all()  # members of different ages
        return
    if name in ("rnd", "icm", "disagreement", "counts"):
        (learned,) = found.values()  # steps of Adam, or counts of observations
        assert (learned.reshape(3, -1).sum(1) > 10).all()
        return
    assert len(found) == 2
    for each in found.values():
        assert (each > 0).sum() > (10 if name == "go-explore" else 0.7 * 3 * 12)


def test_level_run_of_a_seed_is_independent_of_other_seeds(together):
    name, _, several = together
    for many, one in zip(leaves(several), leaves(train(name, [1])), strict=True):
        np.testing.assert_array_equal(many[1], one[0])


def test_level_run_resumes_bit_for_bit(together, tmp_path):
    name, whole, run = together
    path = tmp_path / "broken"
    with pytest.raises(SystemExit):
        train(name, [0, 1, 2], out=path, sinks=[Stop()])
    for one, other in zip(leaves(run), leaves(sterling.resume(path)), strict=True):
        np.testing.assert_array_equal(one, other)
    for leaf, each in known(whole).items():
        np.testing.assert_array_equal(each, known(path)[leaf])
