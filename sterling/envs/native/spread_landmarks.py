"""Spread: agents on a grid that must cover as many landmarks, one agent on each.

After the task of the same name among the multi-agent particle environments (Lowe 2017, "Multi-agent
actor-critic for mixed cooperative-competitive environments"), on a grid and with exact solutions.
Agents and landmarks begin on random cells, no two agents on one cell and no two landmarks. All
agents move at once, up, right, down, left, or stay; walls surround the grid, and several agents may
share a cell. An agent holds a landmark if it stands there and no agent before it in the list does.
An agent that holds none after a step is paid -0.1; the episode ends when every landmark is held.

So the team is paid -0.1 for each landmark that is not held, and an agent that holds one gains
nothing itself by moving on to another, even where that would help the team. The best team return is
found by dynamic programming over the positions of all agents: from one start :meth:`Spread.best`,
averaged over all starts :meth:`Spread.best_on_average`.

Names: ``N-agents-HxW``, for instance ``3-agents-4x4``; cells ** agents is at most 100,000. With
``-state`` at the end, as in ``3-agents-4x4-state``, critics also observe the ``state``: the
landmarks, and where each agent stands, by name. Agents themselves observe how many others stand on
a cell, and not which ones.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import random_keys
from sterling.envs.hosted.shared_memory import OBSERVATION
from sterling.problem.agent_axis import joint
from sterling.problem.critic_only_obs import STATE
from sterling.types import Mistake, Obs

NAMES = ("2-agents-3x3", "3-agents-3x3", "3-agents-4x4", "3-agents-3x3-state")
NAME_PATTERN = re.compile(r"(\d+)-agents-(\d+)x(\d+)(-state)?")
NO_LANDMARK_REWARD = -0.1  # an agent's reward for a step after which it holds no landmark
LIMIT = 50  # steps
MAX_PLACEMENTS = 100_000  # joint positions of the agents: cells ** agents
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1), (0, 0))  # up, right, down, left, stay


class Level(eqx.Module):
    """The cells of the landmarks, and the cells on which the agents begin."""

    landmarks: Int[Array, "agent"]
    start: Int[Array, "agent"]


class SpreadState(eqx.Module):
    """Which cells are landmarks, and where the agents stand."""

    landmarks: Bool[Array, "cell"]
    places: Int[Array, "agent"]


class Spread:
    """The grid, as a :class:`sterling.envs.traced_world.Task` of several agents with levels."""

    levels = 0  # by default a new level in every episode

    def __init__(self, count: int, height: int, width: int, *, state: bool = False):
        self.unseen = (STATE,) if state else ()
        self.agents = tuple(f"agent_{number}" for number in range(count))
        self.cells, self._count, self._shape = height * width, count, (height, width)
        row, column = np.divmod(np.arange(self.cells), width)
        self._next_cell = np.stack([
            np.clip(row + down, 0, height - 1) * width + np.clip(column + right, 0, width - 1)
            for down, right in MOVES
        ], 1).astype(np.int32)  # fmt: skip

    @property
    def obs(self) -> spaces.Space[Any]:
        """For each agent and cell: whether the agent stands there, whether it is a landmark, and
        how many other agents stand there."""
        high = np.repeat(np.array([1, 1, self._count - 1], np.float32), self.cells)
        seen = joint(spaces.Box(np.zeros_like(high), high), self._count)
        if not self.unseen:
            return seen
        whole = spaces.Box(0.0, 1.0, ((self._count + 1) * self.cells,), np.float32)
        return spaces.Dict({OBSERVATION: seen, STATE: whole})

    @property
    def action(self) -> spaces.Space[Any]:
        """The move of each agent."""
        return joint(spaces.Discrete(len(MOVES)), self._count)

    def level(self, key: Key[Array, ""]) -> Level:
        """Draw random landmarks and first cells."""
        cells = [jax.random.permutation(random_keys.fold(key, what), self.cells)[: self._count]
                 for what in ("landmarks", "start")]  # fmt: skip
        return Level(*(each.astype(jnp.int32) for each in cells))

    def begin(self, level: Level, key: Key[Array, ""]) -> tuple[SpreadState, Obs]:
        """Start in a level; nothing is random."""
        landmarks = jnp.zeros(self.cells, bool).at[level.landmarks].set(True)
        state = SpreadState(landmarks, level.start)
        return state, self._observe(state)

    def step(
        self, state: SpreadState, action: Int[Array, "agent"], key: Key[Array, ""]
    ) -> tuple[Any, ...]:
        """Move all agents."""
        moved = SpreadState(state.landmarks, jnp.asarray(self._next_cell)[state.places, action])
        together = moved.places[:, None] == moved.places[None]
        taken = jnp.tril(together, -1).any(1)  # an agent earlier in the list stands there, too
        holds = state.landmarks[moved.places] & ~taken
        reward = jnp.where(holds, 0.0, NO_LANDMARK_REWARD)
        return moved, self._observe(moved), reward, holds.all(), jnp.zeros((), bool)

    def best(self, level: Level) -> float:
        """Return the best team return from a level, without a time limit."""
        values = self._values(np.asarray(level.landmarks))
        return float(values[tuple(np.asarray(level.start))])

    def best_on_average(self) -> float:
        """Return the best expected team return, averaged over all starts."""
        count, cells = self._count, range(self.cells)
        apart = np.zeros((self.cells,) * count, bool)
        for start in itertools.permutations(cells, count):
            apart[start] = True
        every = [self._values(np.array(each))[apart].mean()
                 for each in itertools.combinations(cells, count)]  # fmt: skip
        return float(np.mean(every))

    def grid_image(self, obs: Any) -> Float[np.ndarray, "..."]:
        """Return observations as images of the grid, for films: one channel for the landmarks, then
        one per agent."""
        obs = obs[OBSERVATION] if self.unseen else obs
        places, landmarks, _ = np.split(obs, 3, -1)
        cells = np.concatenate([landmarks[..., :1, :], places], -2).swapaxes(-1, -2)
        return cells.reshape(*cells.shape[:-2], *self._shape, self._count + 1)

    def _values(self, landmarks: Int[np.ndarray, "agent"]) -> Float[np.ndarray, "..."]:
        """Return the best team return from every joint position, with one axis of cells per
        agent."""
        places = np.indices((self.cells,) * self._count)
        held = sum((places == cell).any(0).astype(int) for cell in landmarks)
        # the team's reward for arriving there
        paid = NO_LANDMARK_REWARD * (self._count - np.asarray(held))
        value = np.where(paid < 0, -np.inf, 0.0)
        while True:
            after = paid + np.where(paid < 0, value, 0.0)
            for axis in range(self._count):
                after = np.max([np.take(after, move, axis) for move in self._next_cell.T], 0)
            if np.array_equal(after, value):
                return value
            value = after

    def _observe(self, state: SpreadState) -> Any:
        own = jax.nn.one_hot(state.places, self.cells)
        landmarks = jnp.broadcast_to(state.landmarks.astype(jnp.float32)[None], own.shape)
        seen = jnp.concatenate([own, landmarks, own.sum(0, keepdims=True) - own], -1)
        if not self.unseen:
            return seen
        return {OBSERVATION: seen, STATE: jnp.concatenate([own.ravel(), landmarks[0]])}


def names() -> list[str]:
    """Return example names; other sizes work too."""
    return list(NAMES)


def knows(name: str) -> bool:
    """Whether ``name`` is ``N-agents-HxW`` or ``N-agents-HxW-state``, with two agents or more, a
    cell for each and at most ``MAX_PLACEMENTS`` joint positions."""
    found = NAME_PATTERN.fullmatch(name)
    if not found:
        return False
    count, height, width = map(int, found.groups()[:3])
    cells = height * width
    return 2 <= count <= min(cells, 16) and cells**count <= MAX_PLACEMENTS


def make(name: str) -> tuple[Spread, int]:
    """Return the grid called ``name`` and its time limit in steps."""
    found = NAME_PATTERN.fullmatch(name)
    if not found or not knows(name):
        raise Mistake(f"Unknown spread {name!r}. Write N-agents-HxW, for instance 3-agents-4x4.")
    return Spread(*map(int, found.groups()[:3]), state=bool(found[4])), LIMIT
