"""Tables: finite worlds whose values are known exactly, for every policy.

A :class:`Tabular` is a Markov decision process given by its arrays. It can be trained on like any
other world, and answers what no other world can: the value of any policy by one linear solve, the
optimal value by policy iteration, and how often a policy comes by. Learners from logs and
estimators of a policy's value are checked against these numbers.

    values       Q = r + gamma C V,   V(s) = sum_a pi(a|s) Q(s, a)
    where        C(s, a, s') = P(s'|s, a) (1 - end(s, a, s'))

Names: ``chain-N`` (a corridor of N states with slips, a reward at its end), ``grid-HxW`` (rooms
with slips, a goal in the far corner), ``random-SxA-SEED`` (Garnet worlds: Archibald 1995, three
successors of every pair), each with ``-numbers`` observed as a number instead of a one-hot vector.
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

LIMIT = 100  # steps after which episodes of the named worlds are cut
SLIP = 0.1  # chance that a named world does something else than it is told
ROUNDING = 1e-6  # by which rows of probabilities may miss 1
NAMES = ("chain-8", "chain-16", "grid-4x4", "grid-8x8", "random-16x4-0", "random-64x4-0")
FORMS = {
    "chain": re.compile(r"chain-(\d+)"),
    "grid": re.compile(r"grid-(\d+)x(\d+)"),
    "random": re.compile(r"random-(\d+)x(\d+)-(\d+)"),
}

Table = Float[np.ndarray, "state action"]


class Tabular:
    """A finite world, a :class:`sterling.envs.traced.Task`.

    Args:
        transition: probability of the successor, ``(state, action, state)``.
        reward: of a step, ``(state, action)``.
        end: chance that the world ends with a step, ``(state, action)``; or ``(state,)``, in which
            it ends on arrival. What was arrived at is observed either way, and worth nothing.
        start: probability of the first state, ``(state,)``.
        numbers: observe the number of the state (Discrete) instead of a one-hot vector.

    Raises Mistake where shapes or probabilities do not fit.
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
            raise Mistake(f"ends are ({states},) or ({states}, {actions}); got {given.shape}")
        wide = given[None, None] if given.ndim == 1 else given[:, :, None]
        self.end = np.broadcast_to(wide, (states, actions, states))  # by successor too
        for what, rows in (("transition", self.transition), ("start", self.start)):
            wanted = (states, actions, states) if what == "transition" else (states,)
            if rows.shape != wanted:
                raise Mistake(f"{what} is {wanted} where the reward is {self.reward.shape}")
            if (rows < 0).any() or (abs(rows.sum(-1) - 1) > ROUNDING).any():
                raise Mistake(f"{what} does not hold probabilities: its rows must sum to 1")
        if (given < 0).any() or (given > 1).any():
            raise Mistake("ends are chances between 0 and 1")
        self._next = jnp.asarray(self.transition, jnp.float32)
        self._reward = jnp.asarray(self.reward, jnp.float32)
        self._end = jnp.asarray(self.end, jnp.float32)
        self._start = jnp.asarray(self.start, jnp.float32)

    states = property(lambda self: self.reward.shape[0], doc="How many there are.")
    actions = property(lambda self: self.reward.shape[1], doc="How many there are.")

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
        """A first state."""
        state = jax.random.categorical(key, jnp.log(self._start)).astype(jnp.int32)
        return state, self.seen(state)

    def step(
        self, state: Int[Array, ""], action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], Array, Array, Array, Array]:
        """Move."""
        where, whether = jax.random.split(key)
        chances = jnp.log(self._next[state, action])
        following = jax.random.categorical(where, chances).astype(jnp.int32)
        ended = jax.random.uniform(whether) < self._end[state, action, following]
        never = jnp.zeros((), bool)
        return following, self.seen(following), self._reward[state, action], ended, never

    def seen(self, state: Int[Array, "..."]) -> Array:
        """The observation of states."""
        return state if self.numbers else jax.nn.one_hot(state, self.states)

    def values(self, policy: Table, gamma: float, horizon: int | None = None) -> Table:
        """Q of a ``policy``: its return from every pair, exactly.

        ``horizon``: count only so many rewards, as where episodes are cut and not bootstrapped;
        None: all there are. Raises Mistake where that has no bound (gamma 1 and no end).
        """
        going = self._going
        if horizon is not None:
            q = np.zeros_like(self.reward)
            for _ in range(horizon):
                q = self.reward + gamma * going @ (policy * q).sum(1)
            return q
        moved = np.einsum("sa,sat->st", policy, going)
        matrix = np.eye(self.states) - gamma * moved
        if gamma >= 1 and np.linalg.cond(matrix) > 1e12:
            raise Mistake("this policy never ends somewhere: without discount it has no value")
        value = np.linalg.solve(matrix, (policy * self.reward).sum(1))
        return self.reward + gamma * going @ value

    def optimal(self, gamma: float) -> Table:
        """Q of the best policy, by policy iteration (Howard 1960), which ends with it exactly."""
        q = self.values(np.full_like(self.reward, 1 / self.actions), gamma)
        for _ in range(self.states * self.actions + 10):
            policy = self.greedy(q)
            better = self.values(policy, gamma)
            if np.allclose(better, q, rtol=0, atol=1e-12):
                break
            q = better
        return better

    def greedy(self, q: Table, epsilon: float = 0.0) -> Table:
        """The policy that takes the first best action, but any with chance ``epsilon``."""
        best = np.eye(self.actions)[np.argmax(q > q.max(1, keepdims=True) - 1e-9, 1)]
        return (1 - epsilon) * best + epsilon / self.actions

    def worth(self, policy: Table, gamma: float, horizon: int | None = None) -> float:
        """The policy's expected return from the start: what off-policy estimates must find."""
        value = (policy * self.values(policy, gamma, horizon)).sum(1)
        return float(self.start @ value)

    def visits(self, policy: Table, gamma: float) -> Table:
        """Expected discounted number of times that a policy takes each action in each state."""
        moved = np.einsum("sa,sat->st", policy, self._going)
        times = np.linalg.solve(np.eye(self.states) - gamma * moved.T, self.start)
        return times[:, None] * policy

    @property
    def _going(self) -> Float[np.ndarray, "state action state"]:
        """C of the module docstring."""
        return self.transition * (1 - self.end)


def names() -> list[str]:
    """Some of them: sizes may be others."""
    return list(NAMES)


def make(name: str) -> tuple[Tabular, int]:
    """The world called ``name`` and its time limit."""
    return tabular(name), LIMIT


def knows(name: str) -> bool:
    """Whether there is a world of that name."""
    plain = name.removesuffix("-numbers")
    return any(form.fullmatch(plain) for form in FORMS.values())


def tabular(name: str) -> Tabular:
    """The world called ``name``: a form of the module docstring with its sizes."""
    plain = name.removesuffix("-numbers")
    for kind, form in FORMS.items():
        if found := form.fullmatch(plain):
            sizes = [int(word) for word in found.groups()]
            if min(sizes[:2]) < 2 - (kind == "grid") or np.prod(sizes[:2]) < 2:
                raise Mistake(f"a world {name!r} is too small; take at least 2 states and actions")
            return Tabular(*MAKERS[kind](*sizes), numbers=plain != name)
    raise Mistake(f"no table is called {name!r}; take chain-N, grid-HxW or random-SxA-SEED")


Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _chain(states: int) -> Arrays:
    """Left or right; a slip stays. Arriving at the last state brings 1 and ends."""
    here, last = np.arange(states), states - 1
    aims = np.stack([np.maximum(here - 1, 0), np.minimum(here + 1, last)], 1)
    return _told(aims, here[:, None] == np.arange(states), last, 0)


def _grid(height: int, width: int) -> Arrays:
    """Up, right, down, left, walls around; a slip goes anywhere near. The goal brings 1, ends."""
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
    return _told(aims, near, height * width - 1, 0)


def _told(aims: np.ndarray, slip: np.ndarray, goal: int, first: int) -> Arrays:
    """Worlds in which an action aims at a state and sometimes slips; the goal's arrival is 1."""
    every = np.eye(len(aims))
    transition = (1 - SLIP) * every[aims] + SLIP * slip[:, None, :]
    return transition, transition[:, :, goal], every[goal], every[first]


def _random(states: int, actions: int, seed: int) -> Arrays:
    """Garnet: each pair has three successors of random chances, a normal reward and an end."""
    random = np.random.default_rng(seed)
    transition = np.zeros((states, actions, states))
    for pair in np.ndindex(states, actions):
        some = random.choice(states, min(3, states), replace=False)
        transition[(*pair, some)] = random.dirichlet(np.ones(len(some)))
    reward = random.normal(size=(states, actions))
    end = random.uniform(0.0, 0.1, (states, actions))
    return transition, reward, end, np.full(states, 1 / states)


MAKERS: dict[str, Callable[..., Arrays]] = {"chain": _chain, "grid": _grid, "random": _random}
