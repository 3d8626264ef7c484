"""Pure environments as worlds: everything stays inside the compiled program.

A :class:`Task` is one copy of an environment, as pure functions. :class:`TracedWorld` runs ``seeds
x envs`` copies of it, applies the time limit, and resets on the step after an episode's last: as
the task does, or to a given start (``envs/episode_starts.py``).
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from gymnasium import spaces
from jaxtyping import Array, Bool, Int, Key, PyTree

from sterling import random_keys
from sterling.envs import levels as task_levels
from sterling.envs.env_options import check_whole_number
from sterling.envs.episode_starts import Start
from sterling.problem import critic_only_obs
from sterling.problem.agent_axis import REWARD, Agents
from sterling.problem.channels import Channel, check_channels
from sterling.problem.episode_summaries import check_summaries
from sterling.problem.goal_obs import goal_judge
from sterling.seed_axis import over_seeds
from sterling.types import Action, AnyArray, Mistake, Obs, Spec, Step

STRATEGIES = ("vmap", "map")


@runtime_checkable
class Task(Protocol):
    """One copy of an environment, as pure functions of arrays.

    Episodes begin by ``reset(key) -> (state, obs)``. A task with levels offers instead ``level(key)
    -> level``, a tree of arrays, and ``begin(level, key) -> (state, obs)``; optionally
    ``edit(level, key) -> level``, which returns a similar level, and ``levels``, the default number
    of levels in training (0: a new one each time). See ``envs/levels.py``.

    ``step`` returns state, observation, reward, terminated and truncated; the last three are
    scalars. A state has the same shapes and dtypes from ``reset`` and from ``step``. A task that
    reports more has an attribute ``channels``, a dict of
    :class:`sterling.problem.channels.Channel`; its ``step`` returns a sixth value, a dict of their
    numbers. An attribute ``summaries`` is a dict of
    :class:`sterling.problem.episode_summaries.Summary`, numbers of all evaluation episodes.

    In a game of two sides that move in turn, where the reward is the mover's, ``alternating`` is
    True: the discount is -1 while the game continues, because what the other side gains is lost.
    ``evaluation_task`` is the task for evaluation, if it is another one; it has the same spaces.
    A task that truncates its own episodes says after how many steps in ``max_episode_steps``, so
    that learners know it (``Spec.limit``).

    A task of several agents has an attribute ``agents``, their names: its spaces have an axis of
    agents (``sterling.problem.agent_axis.joint``), and its reward has one entry per agent. The
    world's reward is their sum. An entry ``alive`` of the observation is 0 for an agent that leaves
    before the episode is over, and an entry ``truncated`` is 1 once if the step cut that agent off,
    in which case the observation still shows its last. A task with goals offers ``judge(achieved,
    desired) -> (reward, discount)``: see ``problem/goal_obs.py``.

    A task that observes a dict may name in ``unseen`` the entries that critics may get and policies
    do not, as ``("state",)``: see ``problem/critic_only_obs.py``. They have no axis of agents.
    """

    @property
    def obs(self) -> spaces.Space[Any]:
        """The space of observations."""

    @property
    def action(self) -> spaces.Space[Any]:
        """The space of actions."""

    def step(self, state: PyTree, action: Action, key: Key[Array, ""]) -> tuple[Any, ...]:
        """Apply an action; return state, observation, reward, terminated, truncated."""


class TracedState(eqx.Module):
    """The tasks' states, the length of their episodes so far, and which episodes have just ended.

    Leaves are ``(seed, env, ...)``; inside the program also those of one seed or one env.
    """

    task: PyTree
    elapsed: Int[Array, "..."]
    ended: Bool[Array, "..."]
    start: Start | None = None  # where ``given`` envs begin (None: no env was given a start)
    given: Bool[Array, "..."] | None = None  # the envs with a given start


class TracedWorld:
    """``seeds x envs`` copies of a :class:`Task` as a :class:`sterling.types.World`.

    ``limit`` truncates episodes after that many steps (0: never); a truncation has discount 1, and
    an episode that ends in the very step of its limit has ended. Under ``strategy="map"`` seeds run
    one after another inside the program, and N seeds are bit-equal to each of them alone;
    ``"vmap"`` runs them as one batch. The envs of a seed are always one batch. ``levels``: the
    number of levels in training (None: the task's default), for a task with levels; ``purpose`` is
    "train" or "evaluate".
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
        levels: Any = None,  # int or None; other values raise a Mistake
    ):
        if strategy not in STRATEGIES:
            raise Mistake(f"Unknown strategy {strategy!r}. Use 'vmap' or 'map'.")
        if limit < 0:
            raise Mistake(f"A time limit of {limit} steps is not possible. Use 0 for no limit.")
        # agents are told of the task that they are trained in, also where they are evaluated
        known: Any = {"limit": _shown_limit(task, limit), "alternating": _is_alternating(task)}
        known["level_space"] = task_levels.level_space(task)
        if purpose.partition("/")[0] == "evaluate":
            task = getattr(task, "evaluation_task", task)
        self.task, self.seeds, self.limit, self._strategy = task, len(seeds), limit, strategy
        self._channels = check_channels(dict(getattr(task, "channels", {})))
        agents = task_agents(task)
        channels = self._channels if agents is None else agents.channels | self._channels
        parts: Any = {"channels": channels, "agents": agents, "judge": goal_judge(task)}
        parts["unseen"] = task_unseen(task)
        parts["summaries"] = check_summaries(getattr(task, "summaries", {}), channels)
        self.spec = Spec(task.obs, task.action, envs, **parts, **known)
        self._alternating = _is_alternating(task)
        usual = getattr(task, "levels", 0) if isinstance(task, task_levels.TaskWithLevels) else 0
        count = usual if levels is None else levels
        check_whole_number("levels", count, 0)
        self.book = task_levels.make_level_book(task, purpose, count) if count else None
        self._begin = task_levels.make_reset(task, self.book)
        self._reset = jax.jit(over_seeds(self._strategy, self._reset_seed))

    def reset(self, keys: Key[Array, "seed"]) -> tuple[TracedState, Obs]:
        """Start every episode anew."""
        return self._reset(keys)

    def step(
        self, state: TracedState, action: Action, keys: Key[Array, "seed"]
    ) -> tuple[TracedState, Step]:
        """Step every env."""
        return over_seeds(self._strategy, self._step_seed)(state, action, keys)

    def assign_start(
        self, state: TracedState, start: Start, given: Bool[Array, "seed env"], now: bool = False
    ) -> TracedState:
        """Make episodes begin at ``start`` in the envs that are ``given`` it, from their next reset
        on; with ``now`` that reset is the next step."""
        if start.level is not None and not isinstance(self.task, task_levels.TaskWithLevels):
            raise Mistake("This world has no levels to begin in. Give a state to begin in.")
        ended = state.ended | given if now else state.ended
        if state.start is not None and state.given is not None:
            if (start.level is None) != (state.start.level is None):
                raise Mistake("A world begins in given levels or in given states, not both.")
            start, given = tree_where(given, start, state.start), given | state.given
        return TracedState(state.task, state.elapsed, ended, start, given)

    def current_start(self, state: TracedState, obs: Obs) -> Start:
        """Return the current state of every env as a start."""
        return Start(state=state.task, elapsed=state.elapsed, obs=obs)

    def close(self) -> None:
        """No-op: a compiled world holds no resources."""

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
        """Step one copy, or reset it if its episode was over; both are computed."""
        moved, obs, reward, terminated, truncated, *more = self.task.step(state.task, action, key)
        reported = check_reported(self._channels, *more)
        if self.spec.agents is not None:
            reported[REWARD] = reward.astype(jnp.float32)
            reward = reported[REWARD].sum()
        # of step and reset one is used
        started, first_obs, steps_done = self._begin_env(state, key)
        resetting = state.ended
        elapsed = jnp.where(resetting, steps_done, state.elapsed + 1)
        terminated = terminated & ~resetting
        cut = truncated | (elapsed >= self.limit) if self.limit else truncated
        last = (terminated | cut) & ~resetting
        discount = (~terminated).astype(jnp.float32)
        step = Step(
            tree_where(resetting, first_obs, obs),
            jnp.where(resetting, 0.0, reward.astype(jnp.float32)),
            -discount if self._alternating else discount,
            last,
            ~resetting,
            channels={name: jnp.where(resetting, 0.0, value) for name, value in reported.items()},
        )
        task = tree_where(resetting, started, moved)
        return TracedState(task, elapsed, last, state.start, state.given), step

    def _begin_env(
        self, state: TracedState, key: Key[Array, ""]
    ) -> tuple[PyTree, Obs, Int[Array, ""] | int]:
        """Begin an episode of one copy, at its given start if it has one.

        Returns the task's state, the first observation, and the number of steps that count as done.
        """
        start = state.start
        if start is None or state.given is None:
            return *self._begin(key), 0
        if start.level is not None:
            begun = task_levels.begin_episode(self.task, self.book, key, state.given, start.level)
            return *begun, 0
        given_start = (start.state, start.obs, start.elapsed)
        return tree_where(state.given, given_start, (*self._begin(key), jnp.zeros((), jnp.int32)))

    def _env_keys(self, key: Key[Array, ""]) -> Key[Array, "env"]:
        """Return one key per env, which does not depend on the number of envs."""
        return random_keys.split(key, "env", self.spec.envs)


def _is_alternating(task: Any) -> bool:
    return bool(getattr(task, "alternating", False))


def _shown_limit(task: Any, limit: int) -> int | None:
    """Return the smaller of the world's time limit and the task's own; 0 and None: no limit."""
    own = getattr(task, "max_episode_steps", None)
    if own is not None:
        check_whole_number("The task's max_episode_steps", own, 0)
    return min((int(each) for each in (limit, own) if each), default=None)


def task_agents(task: Any) -> Agents | None:
    """Return the agents of a task, None if it has one; raises Mistake if its spaces have no axis of
    agents, or a channel has the name of their rewards."""
    names = getattr(task, "agents", None)
    if names is None:
        return None
    agents = Agents(tuple(names))
    if REWARD in getattr(task, "channels", {}):
        raise Mistake(
            f"A task of several agents cannot have a channel {REWARD!r}. Rename the channel."
        )
    agents.single_agent_spec(Spec(task.obs, task.action, unseen=task_unseen(task)))
    return agents


def task_unseen(task: Any) -> tuple[str, ...]:
    """Return the entries of a task's observations that only critics get; raises Mistake if they are
    impossible."""
    return critic_only_obs.check_unseen(getattr(task, "unseen", ()), task.obs)


def check_reported(channels: dict[str, Channel], answer: Any = None) -> dict[str, Array]:
    """Return what a step reported, as float32; raises Mistake if it does not match the declared
    ``channels``."""
    answer = {} if answer is None else answer
    if not isinstance(answer, dict) or answer.keys() != channels.keys():
        found = ", ".join(answer) if isinstance(answer, dict) else f"a {type(answer).__name__}"
        raise Mistake(
            f"The task's step reported {found or 'no channels'}, but the task declares "
            f"{', '.join(channels) or 'no channels'}. Return a dict of exactly the "
            "declared channels as the sixth value."
        )
    if wrong := [name for name in channels if jnp.iscomplexobj(answer[name])]:
        raise Mistake(f"Channel {wrong[0]!r} holds complex numbers. Report real ones.")
    made = {name: jnp.asarray(answer[name], jnp.float32) for name in channels}
    for name, value in made.items():
        if value.shape != channels[name].shape:
            raise Mistake(
                f"Channel {name!r} has shape {value.shape}, but its declaration says "
                f"{channels[name].shape}. Name its entries with Channel(parts=(...))."
            )
    return made


def tree_where(which: Bool[AnyArray, "..."], one: PyTree, other: PyTree) -> PyTree:
    """Return the tree ``one`` where ``which`` is True, else ``other``; every leaf begins with the
    axes of ``which``."""

    def pick(x: Array, y: Array) -> Array:
        return jnp.where(which.reshape(which.shape + (1,) * (x.ndim - which.ndim)), x, y)

    return jax.tree.map(pick, one, other)
