"""SAC under a limit: what moves the multiplier, and which channels it takes."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from sterling.algorithms.safe import sac_lagrangian as algorithm
from sterling.problem.channels import Channel
from sterling.types import Mistake, Record, Spec

OBS, BOX = spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Box(-1.0, 1.0, (2,), np.float32)
CONFIG = algorithm.Config(cost_limit=2.0, multiplier_lr=0.1, width=4, depth=1)


def begun(multiplier):
    spec = Spec(OBS, BOX, 4, 100, channels={"cost": Channel(better=-1)})
    state = algorithm.init(jax.random.key(0), spec, CONFIG)
    return dataclasses.replace(state, multiplier=jnp.asarray(multiplier))


def fresh(costs, last, mask):
    """Rows of three envs in one step, whose episodes have come to these costs."""
    nothing, no = jnp.zeros((1, 3)), jnp.zeros((1, 3, 3))
    extras = {"cost": nothing, "episode/cost": jnp.asarray([costs])}
    flags = (jnp.asarray([last]), jnp.asarray([mask]))
    return Record(no, jnp.zeros((1, 3, 2)), nothing, nothing + 1.0, no, *flags, extras)


@pytest.mark.parametrize(
    ("costs", "last", "mask", "found"),
    [
        ([5.0, 3.0, 90.0], [True, True, False], [True, True, True], 0.5 + 0.1 * 2.0),
        ([1.0, 90.0, 90.0], [True, True, False], [True, False, True], 0.5 - 0.1 * 1.0),
        ([0.0, 90.0, 90.0], [False, False, False], [True, True, True], 0.5),
    ],
)
def test_sac_lagrangian_multiplier_moves_by_the_cost_of_finished_episodes(costs, last, mask, found):
    state = begun(0.5)
    learned, signals = algorithm.learn_constraint(
        state, fresh(costs, last, mask), jax.random.key(1)
    )
    assert float(learned.multiplier) == pytest.approx(found)
    assert float(signals.metrics["multiplier"]) == pytest.approx(found)
    assert eqx.tree_equal(dataclasses.replace(learned, multiplier=state.multiplier), state)


def test_sac_lagrangian_multiplier_stays_at_zero_below_the_cost_limit():
    rows = fresh([0.0, 0.0, 0.0], [True] * 3, [True] * 3)
    assert float(algorithm.learn_constraint(begun(0.1), rows, jax.random.key(1))[0].multiplier) == 0


def test_sac_lagrangian_refuses_a_channel_that_is_no_cost():
    spec = Spec(OBS, BOX, 4, 100, channels={"speed": Channel(reduce="mean")})
    with pytest.raises(Mistake, match=r"no channel 'cost' of one number.*it reports none"):
        algorithm.init(jax.random.key(0), spec, CONFIG)
