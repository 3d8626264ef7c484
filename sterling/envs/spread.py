"""Spread: agents on a grid that are to stand on as many landmarks, one on each.

After the task of the same name among the multi-agent particle environments (Lowe 2017, "Multi-agent
actor-critic for mixed cooperative-competitive environments"), on a grid and exact. Agents and
landmarks begin on random cells, no two agents on one and no two landmarks. All agents move at once,
up, right, down, left, or stay; walls stand around the grid, and several agents may share a cell.
An agent holds a landmark if it stands there and no agent named before it does. Whoever holds none
after a step is paid -0.1 for it; the episode ends when every landmark is held.

So the team is paid -0.1 for each landmark that is left alone, and an agent that holds one has no
reason of its own to leave it for a further one, where that would serve the team. The best return of
a team is found by dynamic programming over where all agents stand: :meth:`Spread.best`, and over
all ways to begin :meth:`Spread.best_on_average`.

Names: ``N-agents-HxW``, for instance ``3-agents-4x4``; cells ** agents is at most 100,000. Named
``3-agents-4x4-state``, critics also see the ``state``: where each agent stands, by its name, and
the landmarks. Agents see how many others stand on a cell, and not who they are.
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

from sterling import keys
from sterling.agents import joint
from sterling.envs.board import PROPER
from sterling.types import Mistake, Obs
from sterling.unseen import STATE

NAMES = ("2-agents-3x3", "3-agents-3x3", "3-agents-4x4", "3-agents-3x3-state")
FORM = re.compile(r"(\d+)-agents-(\d+)x(\d+)(-state)?")
ALONE = -0.1  # reward of a step that leaves an agent without a landmark
LIMIT = 50  # steps
MOST = 100_000  # ways for the agents to stand
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1), (0, 0))  # up, right, down, left, stay


class Level(eqx.Module):
    """The cells of the landmarks, and those that the agents begin on."""

    landmarks: Int[Array, "agent"]
    start: Int[Array, "agent"]


class SpreadState(eqx.Module):
    """Which cells are landmarks, and where the agents stand."""

    landmarks: Bool[Array, "cell"]
    places: Int[Array, "agent"]


class Spread:
    """The grid, a :class:`sterling.envs.traced.Task` of several agents, with levels."""

    levels = 0  # a new one in every episode, unless the user says otherwise

    def __init__(self, count: int, height: int, width: int, *, state: bool = False):
        self.unseen = (STATE,) if state else ()
        self.agents = tuple(f"agent_{number}" for number in range(count))
        self.cells, self._count, self._shape = height * width, count, (height, width)
        row, column = np.divmod(np.arange(self.cells), width)
        self._beyond = np.stack([
            np.clip(row + down, 0, height - 1) * width + np.clip(column + right, 0, width - 1)
            for down, right in MOVES
        ], 1).astype(np.int32)  # fmt: skip

    @property
    def obs(self) -> spaces.Space[Any]:
        """For each agent, cell by cell: whether it stands there, whether there is a landmark, and
        how many others stand there."""
        high = np.repeat(np.array([1, 1, self._count - 1], np.float32), self.cells)
        seen = joint(spaces.Box(np.zeros_like(high), high), self._count)
        if not self.unseen:
            return seen
        whole = spaces.Box(0.0, 1.0, ((self._count + 1) * self.cells,), np.float32)
        return spaces.Dict({PROPER: seen, STATE: whole})

    @property
    def action(self) -> spaces.Space[Any]:
        """Where each agent goes."""
        return joint(spaces.Discrete(len(MOVES)), self._count)

    def level(self, key: Key[Array, ""]) -> Level:
        """Any way to begin."""
        cells = [jax.random.permutation(keys.fold(key, what), self.cells)[: self._count]
                 for what in ("landmarks", "start")]  # fmt: skip
        return Level(*(each.astype(jnp.int32) for each in cells))

    def begin(self, level: Level, key: Key[Array, ""]) -> tuple[SpreadState, Obs]:
        """Start; nothing is left to chance."""
        landmarks = jnp.zeros(self.cells, bool).at[level.landmarks].set(True)
        state = SpreadState(landmarks, level.start)
        return state, self._seen(state)

    def step(
        self, state: SpreadState, action: Int[Array, "agent"], key: Key[Array, ""]
    ) -> tuple[Any, ...]:
        """All move."""
        moved = SpreadState(state.landmarks, jnp.asarray(self._beyond)[state.places, action])
        same = moved.places[:, None] == moved.places[None]
        before = jnp.tril(same, -1).any(1)  # an agent named before stands there as well
        holds = state.landmarks[moved.places] & ~before
        reward = jnp.where(holds, 0.0, ALONE)
        return moved, self._seen(moved), reward, holds.all(), jnp.zeros((), bool)

    def best(self, level: Level) -> float:
        """The largest return of a team that begins there and has all the time it needs."""
        values = self._values(np.asarray(level.landmarks))
        return float(values[tuple(np.asarray(level.start))])

    def best_on_average(self) -> float:
        """The largest expected return of a team, over all ways to begin."""
        count, cells = self._count, range(self.cells)
        apart = np.zeros((self.cells,) * count, bool)
        for start in itertools.permutations(cells, count):
            apart[start] = True
        every = [self._values(np.array(each))[apart].mean()
                 for each in itertools.combinations(cells, count)]  # fmt: skip
        return float(np.mean(every))

    def painted(self, obs: Any) -> Float[np.ndarray, "..."]:
        """What is seen as a grid of channels to look at: landmarks, then each agent."""
        obs = obs[PROPER] if self.unseen else obs
        places, landmarks, _ = np.split(obs, 3, -1)
        cells = np.concatenate([landmarks[..., :1, :], places], -2).swapaxes(-1, -2)
        return cells.reshape(*cells.shape[:-2], *self._shape, self._count + 1)

    def _values(self, landmarks: Int[np.ndarray, "agent"]) -> Float[np.ndarray, "..."]:
        """The best return from wherever the agents stand, an axis of cells for each of them."""
        places = np.indices((self.cells,) * self._count)
        held = sum((places == cell).any(0).astype(int) for cell in landmarks)
        paid = ALONE * (self._count - np.asarray(held))  # for arriving there
        value = np.where(paid < 0, -np.inf, 0.0)
        while True:
            after = paid + np.where(paid < 0, value, 0.0)
            for axis in range(self._count):
                after = np.max([np.take(after, move, axis) for move in self._beyond.T], 0)
            if np.array_equal(after, value):
                return value
            value = after

    def _seen(self, state: SpreadState) -> Any:
        own = jax.nn.one_hot(state.places, self.cells)
        landmarks = jnp.broadcast_to(state.landmarks.astype(jnp.float32)[None], own.shape)
        seen = jnp.concatenate([own, landmarks, own.sum(0, keepdims=True) - own], -1)
        if not self.unseen:
            return seen
        return {PROPER: seen, STATE: jnp.concatenate([own.ravel(), landmarks[0]])}


def names() -> list[str]:
    """Some of them: sizes may be others."""
    return list(NAMES)


def knows(name: str) -> bool:
    """Whether ``name`` is of the form, with room for all and two agents or more."""
    found = FORM.fullmatch(name)
    if not found:
        return False
    count, height, width = map(int, found.groups()[:3])
    cells = height * width
    return 2 <= count <= min(cells, 16) and cells**count <= MOST


def make(name: str) -> tuple[Spread, int]:
    """The grid called ``name`` and its time limit."""
    found = FORM.fullmatch(name)
    if not found or not knows(name):
        raise Mistake(f"spread {name!r} is not known; write for instance 3-agents-4x4")
    return Spread(*map(int, found.groups()[:3]), state=bool(found[4])), LIMIT
