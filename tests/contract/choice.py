"""An environment for tests: one step, one right choice, and what the wrong one costs."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from sterling.problem.channels import Channel


class Choice:
    """Of two actions the second is worth 1 and the first costs 1; ``seen`` has no direction."""

    obs, action = spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Discrete(2)
    channels: ClassVar = {"cost": Channel(better=-1, within=(0.0, 1.0)), "seen": Channel()}

    def reset(self, key):
        return jnp.zeros(()), jnp.zeros(1)

    def step(self, state, action, key):
        cost = 1.0 - action.astype(jnp.float32)
        over = jnp.ones((), bool)
        return state, jnp.zeros(1), 1.0 - cost, over, ~over, {"cost": cost, "seen": cost}
