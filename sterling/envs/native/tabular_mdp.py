"""Tabular worlds: finite Markov decision processes whose values are known exactly, for every
policy.

A :class:`Tabular` is defined by its arrays. Agents train on it as on any other world, and it
computes exactly the value of any policy (one linear solve), the optimal value (policy iteration)
and a policy's expected visits. Offline learners and off-policy estimators are checked against these
numbers.

  values       Q = r + gamma C V,   V(s) = sum_a pi(a|s) Q(s, a)
  where        C(s, a, s') = P(s'|s, a) (1 - end(s, a, s'))

Names: ``chain-N`` (a corridor of N states with slips and a reward at its end), ``grid-HxW`` (rooms
with slips and a goal in the far corner), ``random-SxA-SEED`` (Garnet problems: Archibald 1995,
three successors per pair). With ``-numbers`` at the end, the observation is the state's number
instead of a one-hot vector.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Int, Key, Num

from sterling.types import Mistake

LIMIT = 100  # the time limit of named worlds, in steps
SLIP_CHANCE = 0.1  # probability that a move of a named world goes elsewhere
PROBABILITY_TOLERANCE = 1e-6  # largest error of a sum of probabilities
NAMES = ("chain-8", "chain-16", "grid-4x4", "grid-8x8", "random-16x4-0", "random-64x4-0")
NAME_PATTERNS = {
    "chain": re.compile(r"chain-(\d+)"),
    "grid": re.compile(r"grid-(\d+)x(\d+)"),
    "random": re.compile(r"random-(\d+)x(\d+)-(\d+)"),
}

Table = Float[np.ndarray, "state action"]


class Tabular:
    """A finite Markov decision process, as a :class:`sterling.envs.traced_world.Task`.

    Args:
        transition: probabilities of the next state, ``(state, action, state)``.
        reward: reward of a step, ``(state, action)``.
        end: probability that a step ends the episode, ``(state, action)``; or ``(state,)``, the
            probability that arriving in the state ends it. The state arrived at is observed either
            way, and has value 0.
        start: probabilities of the first state, ``(state,)``.
        numbers: observe the state's number (Discrete) instead of a one-hot vector.

    Raises Mistake if shapes or probabilities do not fit.
    """

    def __init__(
        self,
        transition: Num[np.ndarray, "state action state2"],
        reward: Num[np.ndarray, "state action"],
        end: Num[np.ndarray, "..."] | Bool[np.ndarray, "..."],
        start: Num[np.ndarray, "state"],
        *,
        numbers: bool = False,
    ):
        self.transition, self.reward = np.array(transition, float), np.array(reward, float)
        self.start, self.numbers = np.array(start, float), numbers
        states, actions = self.reward.shape
        given = np.array(end, float)
        if given.shape not in ((states,), (states, actions)):
            raise Mistake(
                f"end has shape {given.shape}. Give ({states},) or ({states}, {actions})."
            )
        wide = given[None, None] if given.ndim == 1 else given[:, :, None]
        self.end = np.broadcast_to(wide, (states, actions, states))  # for every next state
        for what, rows in (("transition", self.transition), ("start", self.start)):
            wanted = (states, actions, states) if what == "transition" else (states,)
            if rows.shape != wanted:
                raise Mistake(f"{what} has shape {rows.shape}. Give {wanted}, to fit the reward.")
            if (rows < 0).any() or (abs(rows.sum(-1) - 1) > PROBABILITY_TOLERANCE).any():
                raise Mistake(f"{what} does not hold probabilities. Make its rows sum to 1.")
        if (given < 0).any() or (given > 1).any():
            raise Mistake("end does not hold probabilities. Give numbers between 0 and 1.")
        self._next = jax.device_put(self.transition.astype(np.float32))
        self._reward = jax.device_put(self.reward.astype(np.float32))
        self._end = jax.device_put(self.end.astype(np.float32))
        self._start = jax.device_put(self.start.astype(np.float32))

    states = property(lambda self: self.reward.shape[0], doc="The number of states.")
    actions = property(lambda self: self.reward.shape[1], doc="The number of actions.")

    @property
    def obs(self) -> spaces.Space[Any]:
        """A one-hot vector, or the state's number."""
        if self.numbers:
            return spaces.Discrete(self.states)
        return spaces.Box(0.0, 1.0, (self.states,), np.float32)

    @property
    def action(self) -> spaces.Discrete:
        """One choice."""
        return spaces.Discrete(self.actions)

    def reset(self, key: Key[Array, ""]) -> tuple[Int[Array, ""], Array]:
        """Draw a first state."""
        state = jax.random.categorical(key, jnp.log(self._start)).astype(jnp.int32)
        return state, self.seen(state)

    def step(
        self, state: Int[Array, ""], action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], Array, Array, Array, Array]:
        """Draw the next state and whether the episode ends."""
        state_key, end_key = jax.random.split(key)
        chances = jnp.log(self._next[state, action])
        next_state = jax.random.categorical(state_key, chances).astype(jnp.int32)
        ended = jax.random.uniform(end_key) < self._end[state, action, next_state]
        never = jnp.zeros((), bool)
        return next_state, self.seen(next_state), self._reward[state, action], ended, never

    def seen(self, state: Int[Array, "..."]) -> Array:
        """Return the observations of states."""
        return state if self.numbers else jax.nn.one_hot(state, self.states)

    def values(self, policy: Table, gamma: float, horizon: int | None = None) -> Table:
        """Return Q of a ``policy``, exactly: its expected return from every state and action.

        ``horizon``: count only this many rewards, as where episodes are truncated without
        bootstrapping; None: count all. Raises Mistake if the sum is unbounded (gamma 1 and no end).
        """
        continuing = self._continuing
        if horizon is not None:
            q = np.zeros_like(self.reward)
            for _ in range(horizon):
                q = self.reward + gamma * continuing @ (policy * q).sum(1)
            return q
        moved = np.einsum("sa,sat->st", policy, continuing)
        matrix = np.eye(self.states) - gamma * moved
        if gamma >= 1 and np.linalg.cond(matrix) > 1e12:
            raise Mistake(
                "From some state this policy never ends. Give a gamma below 1, or a horizon."
            )
        value = np.linalg.solve(matrix, (policy * self.reward).sum(1))
        return self.reward + gamma * continuing @ value

    def optimal(self, gamma: float) -> Table:
        """Return Q of the best policy, by policy iteration (Howard 1960), which converges
        exactly."""
        q = self.values(np.full_like(self.reward, 1 / self.actions), gamma)
        for _ in range(self.states * self.actions + 10):
            policy = self.greedy(q)
            better = self.values(policy, gamma)
            if np.allclose(better, q, rtol=0, atol=1e-12):
                break
            q = better
        return better

    def greedy(self, q: Table, epsilon: float = 0.0) -> Table:
        """Return the policy that takes the first best action, or a uniformly random one with
        probability ``epsilon``."""
        best = np.eye(self.actions)[np.argmax(q > q.max(1, keepdims=True) - 1e-9, 1)]
        return (1 - epsilon) * best + epsilon / self.actions

    def expected_return(self, policy: Table, gamma: float, horizon: int | None = None) -> float:
        """Return the policy's expected return from the start: the truth for off-policy
        estimators."""
        value = (policy * self.values(policy, gamma, horizon)).sum(1)
        return float(self.start @ value)

    def visits(self, policy: Table, gamma: float) -> Table:
        """Return the expected discounted number of times that a policy takes each action in each
        state."""
        moved = np.einsum("sa,sat->st", policy, self._continuing)
        times = np.linalg.solve(np.eye(self.states) - gamma * moved.T, self.start)
        return times[:, None] * policy

    @property
    def _continuing(self) -> Float[np.ndarray, "state action state"]:
        """C of the module docstring."""
        return self.transition * (1 - self.end)


def names() -> list[str]:
    """Return example names; other sizes work too."""
    return list(NAMES)


def make(name: str) -> tuple[Tabular, int]:
    """Return the world called ``name`` and its time limit in steps."""
    return make_tabular(name), LIMIT


def knows(name: str) -> bool:
    """Whether ``name`` is one of the forms in the module docstring."""
    plain = name.removesuffix("-numbers")
    return any(form.fullmatch(plain) for form in NAME_PATTERNS.values())


def make_tabular(name: str) -> Tabular:
    """Return the world called ``name``, one of the forms in the module docstring."""
    plain = name.removesuffix("-numbers")
    for kind, form in NAME_PATTERNS.items():
        if found := form.fullmatch(plain):
            sizes = [int(word) for word in found.groups()]
            if min(sizes[:2]) < 2 - (kind == "grid") or np.prod(sizes[:2]) < 2:
                raise Mistake(
                    f"The tabular world {name!r} is too small. Give at least 2 states and actions."
                )
            return Tabular(*MAKERS[kind](*sizes), numbers=plain != name)
    raise Mistake(f"Unknown tabular world {name!r}. Use chain-N, grid-HxW or random-SxA-SEED.")


Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _chain_arrays(states: int) -> Arrays:
    """Make the arrays of a chain: left or right; a slip stays; arriving at the last state pays 1
    and ends."""
    here, last = np.arange(states), states - 1
    aims = np.stack([np.maximum(here - 1, 0), np.minimum(here + 1, last)], 1)
    return _slippery_arrays(aims, here[:, None] == np.arange(states), last, 0)


def _grid_arrays(height: int, width: int) -> Arrays:
    """Make the arrays of a grid: up, right, down, left, with walls around; a slip goes to a random
    neighbour; arriving at the goal pays 1 and ends."""
    row, column = np.divmod(np.arange(height * width), width)
    moves = ((-1, 0), (0, 1), (1, 0), (0, -1))
    aims = np.stack(
        [
            np.clip(row + down, 0, height - 1) * width + np.clip(column + right, 0, width - 1)
            for down, right in moves
        ],
        1,
    )
    near = np.eye(height * width)[aims].mean(1)
    return _slippery_arrays(aims, near, height * width - 1, 0)


def _slippery_arrays(aims: np.ndarray, slip: np.ndarray, goal: int, first: int) -> Arrays:
    """Make the arrays of a world whose actions aim at a state and sometimes slip; arriving at the
    goal pays 1 and ends."""
    every = np.eye(len(aims))
    transition = (1 - SLIP_CHANCE) * every[aims] + SLIP_CHANCE * slip[:, None, :]
    return transition, transition[:, :, goal], every[goal], every[first]


def _garnet_arrays(states: int, actions: int, seed: int) -> Arrays:
    """Make the arrays of a Garnet problem: each pair has three successors with random
    probabilities, a normally distributed reward and a random probability of ending."""
    random = np.random.default_rng(seed)
    transition = np.zeros((states, actions, states))
    for pair in np.ndindex(states, actions):
        some = random.choice(states, min(3, states), replace=False)
        transition[(*pair, some)] = random.dirichlet(np.ones(len(some)))
    reward = random.normal(size=(states, actions))
    end = random.uniform(0.0, 0.1, (states, actions))
    return transition, reward, end, np.full(states, 1 / states)


MAKERS: dict[str, Callable[..., Arrays]] = {
    "chain": _chain_arrays,
    "grid": _grid_arrays,
    "random": _garnet_arrays,
}
