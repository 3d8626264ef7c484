"""Pure environments as worlds: everything stays inside the compiled program.

A :class:`Task` is one copy of an environment, as two pure functions. :class:`Traced` runs
``seeds x envs`` copies of it, keeps the clock, and resets on the step after an episode's last: as
the task says, or where it was told to (``envs/starts.py``).
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from gymnasium import spaces
from jaxtyping import Array, Bool, Int, Key, PyTree

from sterling import keys as named
from sterling import unseen
from sterling.agents import REWARD, Agents
from sterling.channels import Channel, checked
from sterling.envs import levels as leveled
from sterling.envs.options import check_whole
from sterling.envs.starts import Start
from sterling.goals import judge_of
from sterling.seeds import over_seeds
from sterling.types import Action, AnyArray, Mistake, Obs, Spec, Step

STRATEGIES = ("vmap", "map")


@runtime_checkable
class Task(Protocol):
    """One copy of an environment, as pure functions of arrays.

    It begins by ``reset(key) -> (state, obs)``. One that has levels offers in its place
    ``level(key) -> level``, a tree of arrays, and ``begin(level, key) -> (state, obs)``; if it can,
    also ``edit(level, key) -> level``, a level much like it, and ``levels``, how many there are in
    training unless the user says so (0: a new one each time). See ``envs/levels.py``.

    ``step`` returns state, observation, reward, terminated and truncated; all but the first two
    are scalars. A state has the same shapes and dtypes from ``reset`` and from ``step``. A task
    that reports more says so by an attribute ``channels``, a dict of
    :class:`sterling.channels.Channel`; its ``step`` returns a sixth value, a dict of their numbers.

    In a game of two sides that move in turn, where the reward is the mover's, ``alternating`` is
    True: the discount is -1 while the game goes on, for what the other side gains is lost.
    ``judged`` is the task that agents are judged in, where that is another one of the same spaces.

    A task of several agents says so by an attribute ``agents``, their names: its spaces have an
    axis of agents (``sterling.agents.joint``), and so has its reward, each one's own. The world's
    is their sum. Who leaves before the episode is over is 0 in an entry ``alive`` of what is seen.
    One with goals offers ``judge(achieved, desired) -> (reward, discount)``: see ``goals.py``.

    A task that observes a dict may name in ``unseen`` those of its entries that policies do not
    get and critics may, as ``("state",)``: see ``unseen.py``. They have no axis of agents.
    """

    @property
    def obs(self) -> spaces.Space[Any]:
        """What is observed."""

    @property
    def action(self) -> spaces.Space[Any]:
        """What can be done."""

    def step(self, state: PyTree, action: Action, key: Key[Array, ""]) -> tuple[Any, ...]:
        """Move."""


class TracedState(eqx.Module):
    """The tasks' own states, how long their episodes have run, and which have just ended.

    Leaves are ``(seed, env, ...)``; inside the program also those of one seed or one env.
    """

    task: PyTree
    elapsed: Int[Array, "..."]
    ended: Bool[Array, "..."]
    start: Start | None = None  # where episodes begin in envs that were told so (None: in no env)
    given: Bool[Array, "..."] | None = None  # in which


class Traced:
    """``seeds x envs`` copies of a :class:`Task` as a :class:`sterling.types.World`.

    ``limit`` cuts episodes after so many steps (0: never); a cut has discount 1, and an episode
    that ends in the very step of its cut has ended. Under ``strategy="map"`` seeds run one after
    another inside the program, and N seeds are bit-equal to each of them alone; ``"vmap"`` runs
    them as one batch. The envs of a seed are always one batch. ``levels``: how many there are in
    training (None: as the task says), where the task has any; ``purpose`` "train" or "evaluate".
    """

    traced = True
    exact = True
    stack = 1

    def __init__(
        self,
        task: Task,
        seeds: tuple[int, ...],
        envs: int,
        *,
        limit: int = 0,
        strategy: str = "vmap",
        purpose: str = "train",
        levels: Any = None,  # int or None; what a user gave is told so in words
    ):
        if strategy not in STRATEGIES:
            raise Mistake(f"strategy {strategy!r} is not known; use 'vmap' or 'map'")
        if limit < 0:
            raise Mistake(f"a time limit of {limit} steps is not possible; use 0 for none")
        if purpose.partition("/")[0] == "evaluate":
            task = getattr(task, "judged", task)
        self.task, self.seeds, self.limit, self._strategy = task, len(seeds), limit, strategy
        self.alternating = bool(getattr(task, "alternating", False))
        self._declared = checked(dict(getattr(task, "channels", {})))
        agents = agents_of(task)
        channels = self._declared if agents is None else agents.channels | self._declared
        parts: Any = {"channels": channels, "agents": agents, "judge": judge_of(task)}
        parts["unseen"] = unseen_of(task)
        self.spec = Spec(task.obs, task.action, envs, **parts)
        usual = getattr(task, "levels", 0) if isinstance(task, leveled.Levelled) else 0
        count = usual if levels is None else levels
        check_whole("levels", count, 0)
        self.book = leveled.book(task, purpose, count) if count else None
        self._begin = leveled.resetting(task, self.book)
        self._reset = jax.jit(over_seeds(self._strategy, self._reset_seed))

    def reset(self, keys: Key[Array, "seed"]) -> tuple[TracedState, Obs]:
        """Start every episode anew."""
        return self._reset(keys)

    def step(
        self, state: TracedState, action: Action, keys: Key[Array, "seed"]
    ) -> tuple[TracedState, Step]:
        """One step of every env."""
        return over_seeds(self._strategy, self._step_seed)(state, action, keys)

    def assign(
        self, state: TracedState, start: Start, given: Bool[Array, "seed env"], now: bool = False
    ) -> TracedState:
        """Episodes begin at ``start`` in the envs that are ``given`` it, from their next reset on;
        with ``now`` that is the next step."""
        if start.level is not None and not isinstance(self.task, leveled.Levelled):
            raise Mistake("this world has no levels to begin in")
        ended = state.ended | given if now else state.ended
        if state.start is not None and state.given is not None:
            if (start.level is None) != (state.start.level is None):
                raise Mistake("a world is told either levels or states to begin in, not both")
            start, given = select(given, start, state.start), given | state.given
        return TracedState(state.task, state.elapsed, ended, start, given)

    def here(self, state: TracedState, obs: Obs) -> Start:
        """Where every env is."""
        return Start(state=state.task, elapsed=state.elapsed, obs=obs)

    def close(self) -> None:
        """Nothing to release."""

    def _reset_seed(self, key: Key[Array, ""]) -> tuple[TracedState, Obs]:
        task, obs = jax.vmap(self._begin)(self._env_keys(key))
        envs = self.spec.envs
        return TracedState(task, jnp.zeros(envs, jnp.int32), jnp.zeros(envs, bool)), obs

    def _step_seed(
        self, state: TracedState, action: Action, key: Key[Array, ""]
    ) -> tuple[TracedState, Step]:
        return jax.vmap(self._step_env)(state, action, self._env_keys(key))

    def _step_env(
        self, state: TracedState, action: Action, key: Key[Array, ""]
    ) -> tuple[TracedState, Step]:
        """Step one copy, or reset it where its episode was over; both are computed."""
        moved, obs, reward, terminated, truncated, *more = self.task.step(state.task, action, key)
        reported = as_declared(self._declared, *more)
        if self.spec.agents is not None:
            reported[REWARD] = reward.astype(jnp.float32)
            reward = reported[REWARD].sum()
        started, first_obs, passed = self._begun(state, key)  # of step and reset only one is used
        fresh = state.ended
        elapsed = jnp.where(fresh, passed, state.elapsed + 1)
        terminated = terminated & ~fresh
        cut = truncated | (elapsed >= self.limit) if self.limit else truncated
        last = (terminated | cut) & ~fresh
        going = (~terminated).astype(jnp.float32)
        step = Step(
            select(fresh, first_obs, obs),
            jnp.where(fresh, 0.0, reward.astype(jnp.float32)),
            -going if self.alternating else going,
            last,
            ~fresh,
            channels={name: jnp.where(fresh, 0.0, value) for name, value in reported.items()},
        )
        task = select(fresh, started, moved)
        return TracedState(task, elapsed, last, state.start, state.given), step

    def _begun(
        self, state: TracedState, key: Key[Array, ""]
    ) -> tuple[PyTree, Obs, Int[Array, ""] | int]:
        """A new episode of one copy, where it was told to begin or else as ever: the task's state,
        what is seen first, and the steps that have passed."""
        start = state.start
        if start is None or state.given is None:
            return *self._begin(key), 0
        if start.level is not None:
            begun = leveled.begin(self.task, self.book, key, state.given, start.level)
            return *begun, 0
        told = (start.state, start.obs, start.elapsed)
        return select(state.given, told, (*self._begin(key), jnp.zeros((), jnp.int32)))

    def _env_keys(self, key: Key[Array, ""]) -> Key[Array, "env"]:
        """An env's randomness does not depend on how many envs run beside it."""
        return named.deal(key, "env", self.spec.envs)


def agents_of(task: Any) -> Agents | None:
    """The agents of a task, where it has several; Mistake where its spaces have no axis of them, or
    a channel takes the name of their rewards."""
    names = getattr(task, "agents", None)
    if names is None:
        return None
    agents = Agents(tuple(names))
    if REWARD in getattr(task, "channels", {}):
        raise Mistake(f"a channel cannot be called {REWARD!r} where there are several agents")
    agents.of_each(Spec(task.obs, task.action, unseen=unseen_of(task)))
    return agents


def unseen_of(task: Any) -> tuple[str, ...]:
    """The entries of a task's observations that only critics get; Mistake where they cannot be."""
    return unseen.checked(getattr(task, "unseen", ()), task.obs)


def as_declared(channels: dict[str, Channel], answer: Any = None) -> dict[str, Array]:
    """What a step reported, as float32; Mistake where it is not what ``channels`` declare."""
    answer = {} if answer is None else answer
    if not isinstance(answer, dict) or answer.keys() != channels.keys():
        found = ", ".join(answer) if isinstance(answer, dict) else f"a {type(answer).__name__}"
        raise Mistake(
            f"a task's step reported {found or 'no channels'}, where the task declares "
            f"{', '.join(channels) or 'no channels'}; return a dict of these as the sixth value"
        )
    made = {name: jnp.asarray(answer[name], jnp.float32) for name in channels}
    for name, value in made.items():
        if value.shape != channels[name].shape:
            raise Mistake(
                f"channel {name!r} has the shape {value.shape}, its declaration says "
                f"{channels[name].shape}; name its entries with Channel(parts=(...))"
            )
    return made


def select(which: Bool[AnyArray, "..."], one: PyTree, other: PyTree) -> PyTree:
    """``one`` where ``which`` else ``other``; every leaf begins with the axes of ``which``."""

    def pick(x: Array, y: Array) -> Array:
        return jnp.where(which.reshape(which.shape + (1,) * (x.ndim - which.ndim)), x, y)

    return jax.tree.map(pick, one, other)
