"""What QRL refuses."""

import jax
import numpy as np
import pytest
from gymnasium import spaces

from sterling.algorithms.goals import qrl
from sterling.types import Mistake, Spec


def begin(goal=3, **fields):
    seen, asked, action = (spaces.Box(-1.0, 1.0, (n,), np.float32) for n in (3, goal, 2))
    obs = spaces.Dict({"observation": seen, "achieved_goal": asked, "desired_goal": asked})
    config = qrl.Config(width=4, depth=1, **fields)
    return jax.eval_shape(lambda key: qrl.init(key, Spec(obs, action), config), jax.random.key(0))


def test_goals_must_be_observations_and_components_whole():
    begin(representation=12, intervals=4)
    with pytest.raises(Mistake, match=r"^qrl measures.*have 2 numbers.*have 3.*gciql or hiql"):
        begin(goal=2)
    with pytest.raises(Mistake, match=r"representation=12 is not a multiple of intervals=8"):
        begin(representation=12)
