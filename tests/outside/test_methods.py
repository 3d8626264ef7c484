"""The methods of examples/methods: a short run of each, and what it learns."""

from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

import sterling
from sterling.data_generation.dataset_order import DatasetOrder
from sterling.data_generation.make_dataset import make_dataset
from sterling.data_generation.run_recording import RunRecording, record_run
from sterling.types import Mistake

METHODS = Path(__file__).parents[2] / "examples/methods"
SMALL = {"length": 32, "minibatch": 64, "epochs": 1, "envs": 4, "anneal": False, "seeds": 2}
SHORT = {"evaluate_episodes": 2, "evaluate_limit": 20, "quiet": True}


@pytest.fixture(name="expert", scope="module")
def _expert(tmp_path_factory):
    """Demonstrations of an agent that hardly learned."""
    folder = tmp_path_factory.mktemp("expert")
    run = sterling.train("ppo", "CartPole-v1", steps=256, out=folder / "run", **SMALL, **SHORT)
    return record_run(RunRecording(run.path, 2), folder / "log")


def parameters(run):
    return jax.tree.leaves(eqx.filter(run.agent.state.discriminator, eqx.is_array))


def test_gail_reads_demonstrations_beside_its_rollouts(expert, tmp_path):
    """Resumed it equals a run that went on; it is evaluated without its log; it needs one."""
    gail = METHODS / "gail.py"
    whole = {"data": expert, "demonstrations": 16, **SMALL, **SHORT}
    short = sterling.train(gail, "CartPole-v1", steps=256, out=tmp_path / "run", **whole)
    assert short.result["steps"] == 256
    longer = sterling.train(gail, "CartPole-v1", steps=512, out=tmp_path / "whole", **whole)
    resumed = sterling.resume(tmp_path / "run", steps=512, quiet=True)
    for one, other in zip(parameters(resumed), parameters(longer), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(Mistake, match="beside its batches: give data=FILE"):
        sterling.train(gail, "CartPole-v1", steps=256, **SMALL, **SHORT)
    with pytest.raises(Mistake, match="Give steps=N and no updates"):
        sterling.train(gail, "CartPole-v1", updates=9, **whole)
    with pytest.raises(Mistake, match="Leave out share"):
        sterling.train(gail, "CartPole-v1", steps=256, share=0.3, **whole)


@pytest.mark.slow
def test_gail_learns_cart_pole_without_its_reward(tmp_path):
    """Random policies hold the pole for about 22 steps."""
    more = {"evaluate_episodes": 10, "quiet": True}
    expert = sterling.train("ppo", "CartPole-v1", steps=80_000, seeds=1, out=tmp_path / "a", **more)
    log = record_run(RunRecording(expert.path, 20), tmp_path / "log")
    run = sterling.train(
        METHODS / "gail.py", "CartPole-v1", data=log, steps=60_000, seeds=3, **more
    )
    assert min(run.result["final"]["return"]["per_seed"]) > 200


@pytest.mark.slow
def test_dac_learns_pendulum_without_its_reward(tmp_path):
    """Random policies earn about -1200; three seeds of DAC earned -295 to -167."""
    more = {"width": 64, "warmup": 500, "evaluate_episodes": 10, "quiet": True}
    expert = sterling.train("sac", "Pendulum-v1", steps=8_000, out=tmp_path / "a", seeds=1, **more)
    log = record_run(RunRecording(expert.path, 10), tmp_path / "log")
    run = sterling.train(METHODS / "dac.py", "Pendulum-v1", data=log, steps=8_000, seeds=3, **more)
    assert min(run.result["final"]["return"]["per_seed"]) > -600


@pytest.fixture(name="random_rows", scope="module")
def _random_rows(tmp_path_factory):
    """5,000 rows of uniformly random actions in Pendulum-v1."""
    order = DatasetOrder("Pendulum-v1", "random", 5_000)
    return make_dataset(order, tmp_path_factory.mktemp("log") / "random")


@pytest.mark.slow
def test_mopo_learns_pendulum_from_random_actions(random_rows):
    """Random policies earn about -1200."""
    sizes = {"width": 64, "model_width": 64, "model_depth": 2, "quiet": True}
    how = {"data": random_rows, "updates": 15_000, "seeds": 3, "evaluate_episodes": 5}
    run = sterling.train(METHODS / "mopo.py", "Pendulum-v1", **how, **sizes)
    assert min(run.result["final"]["return"]["per_seed"]) > -600
    with pytest.raises(Mistake, match="from one store of rows"):
        sterling.train("mbpo", "Pendulum-v1", data=random_rows, steps=9_000, quiet=True)


@pytest.mark.slow
def test_diayn_learns_skills_that_its_discriminator_tells_apart():
    """By chance the reward would be at most 0."""
    how = {"steps": 6_000, "seeds": 2, "width": 64, "warmup": 500, "evaluate_episodes": 0}
    rows = []
    run = sterling.train(METHODS / "diayn.py", "Pendulum-v1", sinks=[Rows(rows)], quiet=True, **how)
    assert run.result["steps"] == 6_000
    assert np.min(rows[-1]["skills/reward"]) > 0.25


class Rows:
    """A sink that keeps the rows of metrics."""

    def __init__(self, rows):
        self.rows = rows

    def write(self, row):
        self.rows.append(row)

    def close(self):
        pass
