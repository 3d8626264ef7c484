"""Deep sea treasure (Vamplew 2011), with the convex front of Yang 2019 (arXiv:1908.08342): a
submarine weighs the treasure that it brings up against the time that it takes.

The sea is 11 x 10; a move is up, right, down or left, and one into the sea bed stays. The deeper a
treasure lies, the more it is worth and the longer is the way. Each episode has a preference
(w, 1 - w), w uniform in [0, 1], which is observed; the reward is w treasure - (1 - w) time.
``front`` is the volume that the treasures and times of a seed's evaluation episodes dominate above
(0, -25): at most 401.8.

    sterling train dqn examples/worlds/deep_sea_treasure.py:Sea --steps 50_000
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, Int, Key

from sterling.envs.summaries import hypervolume
from sterling.problem.channels import Channel

TREASURES = np.array([0.7, 8.2, 11.5, 14.0, 15.1, 16.1, 19.6, 20.3, 22.4, 23.7], np.float32)
DEPTHS = np.array([1, 2, 3, 4, 4, 4, 7, 7, 9, 10])  # of each column's treasure, in rows
TIMES = DEPTHS + np.arange(10)  # moves to each treasure
ROWS, COLUMNS = 11, 10
MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])  # up, right, down, left


class Dive(NamedTuple):
    """Where the submarine is, and what it is to prefer."""

    place: Int[Array, "2"]  # row, column
    moves: Int[Array, ""]  # so far
    preference: Float[Array, "2"]


class Sea:
    """The world, as a :class:`sterling.envs.traced_world.Task`."""

    obs = spaces.Dict({
        "place": spaces.Box(0.0, 1.0, (ROWS + COLUMNS,), np.float32),
        "preference": spaces.Box(0.0, 1.0, (2,), np.float32),
    })  # fmt: skip
    action = spaces.Discrete(4)
    max_episode_steps = 100  # then an episode is truncated
    channels: ClassVar = {"objectives": Channel(parts=("treasure", "time"), directions=(1, -1))}
    summaries: ClassVar = {
        "front": hypervolume(["objectives.treasure", "-objectives.time"], reference=(0.0, -25.0))
    }

    def reset(self, key: Key[Array, ""]) -> tuple[Dive, dict[str, Array]]:
        """Begin at the top left, with a new preference."""
        weight = jax.random.uniform(key)
        zero = jnp.zeros((), jnp.int32)
        dive = Dive(jnp.stack([zero, zero]), zero, jnp.stack([weight, 1.0 - weight]))
        return dive, observed(dive)

    def step(self, dive: Dive, action: Int[Array, ""], key: Key[Array, ""]) -> tuple[Any, ...]:
        """Move; the episode ends at a treasure."""
        last = jnp.array([ROWS - 1, COLUMNS - 1])
        row, column = jnp.clip(dive.place + jnp.asarray(MOVES)[action], 0, last)
        depth = jnp.asarray(DEPTHS)[column]
        place = jnp.where(row > depth, dive.place, jnp.stack([row, column]))
        found = place[0] == jnp.asarray(DEPTHS)[place[1]]
        treasure = jnp.where(found, jnp.asarray(TREASURES)[place[1]], 0.0)
        objectives = jnp.stack([treasure, jnp.ones(())])
        moved = Dive(place, dive.moves + 1, dive.preference)
        reward = dive.preference @ (objectives * jnp.array([1.0, -1.0]))
        over = moved.moves >= self.max_episode_steps
        return moved, observed(moved), reward, found, over, {"objectives": objectives}


def observed(dive: Dive) -> dict[str, Array]:
    """Return the row and the column, each as one of so many, and the preference."""
    row, column = jax.nn.one_hot(dive.place[0], ROWS), jax.nn.one_hot(dive.place[1], COLUMNS)
    return {"place": jnp.concatenate([row, column]), "preference": dive.preference}
