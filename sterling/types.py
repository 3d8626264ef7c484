"""The vocabulary of Sterling: the record, the world, the source, the algorithm.

Arrays have their axes in one order, ``seed, time, env, ...``; an algorithm is written for one seed
and sees ``time, env, ...`` (a rollout) or ``batch, ...`` (transitions).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import gymnasium
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from sterling import config_class
from sterling.agents import Agents
from sterling.channels import Channel
from sterling.needs import AnyNeeds as AnyNeeds
from sterling.needs import Comparisons as Comparisons
from sterling.needs import Dreams as Dreams
from sterling.needs import Feed as Feed
from sterling.needs import Generations as Generations
from sterling.needs import Labels as Labels
from sterling.needs import Needs as Needs
from sterling.needs import Rollouts as Rollouts
from sterling.needs import Sequences as Sequences
from sterling.needs import Texts as Texts
from sterling.needs import Transitions as Transitions

Obs: TypeAlias = PyTree[Any]  # an array, or a dict/tuple of arrays, as the observation space says
Action: TypeAlias = PyTree[Any]
AnyArray: TypeAlias = Array | np.ndarray  # worlds on the host answer in NumPy


class Record(eqx.Module):
    """Experience: one row per world step, every leaf sharing the leading axes.

    ``discount`` is 0 where the world ended and 1 where it went on *or was merely cut off*, so
    ``reward + gamma * discount * value(next_obs)`` is right for ends and for time limits alike.
    It is -1 where another side moves next whose gain is this one's loss and the reward is the
    mover's, so that the same equations play games of two sides in turn.
    ``last`` marks the last row of an episode (ended or cut): no trace may cross it. ``mask`` is
    False for rows that are no experience: the step in which a world resets itself, or crashes, or
    answers NaN (and what follows until its reset). They must not enter any loss; weight by it.
    """

    obs: Obs
    action: Action
    reward: Float[Array, "..."]
    discount: Float[Array, "..."]
    next_obs: Obs  # the true successor, also at an end or a cut
    last: Bool[Array, "..."]
    mask: Bool[Array, "..."]
    extras: dict[str, Array] = dataclasses.field(default_factory=dict)  # log_prob, weight, channels
    start: PyTree = None  # who remembers: the Past before the first row; whole episodes: Lives


class Score(eqx.Module):
    """What an episode's statistics count, where that is not what the learner learns from."""

    reward: Float[AnyArray, "..."]  # not clipped
    last: Bool[AnyArray, "..."]  # the game is over, not only one of its lives


class Step(eqx.Module):
    """What a world answers to an action; leaves are ``(seed, env, ...)``.

    After ``last`` the *next* step ignores its action, resets, and answers with ``mask`` False and
    the first observation of the new episode. So ``obs`` is always the true successor of the
    observation before it, except in masked rows, and no world ever hides a final observation.
    """

    obs: Obs
    reward: Float[AnyArray, "..."]
    discount: Float[AnyArray, "..."]
    last: Bool[AnyArray, "..."]
    mask: Bool[AnyArray, "..."]
    score: Score | None = None  # None: ``reward`` and ``last`` themselves
    channels: dict[str, AnyArray] = dataclasses.field(default_factory=dict)  # see Spec.channels

    @property
    def counted(self) -> Score:
        """What episode statistics count."""
        return Score(self.reward, self.last) if self.score is None else self.score


class Signals(eqx.Module):
    """What a learner found out in one update, told back to the source through ``heed``."""

    metrics: dict[str, Float[Array, "..."]]  # "area/name" -> a number (for each seed), for the log
    samples: dict[str, Array] = dataclasses.field(default_factory=dict)  # one number per sample


@dataclasses.dataclass(frozen=True)
class Log:
    """What is known of logged experience before anything is learned from it."""

    obs_mean: Obs  # of every number of an observation; the tree of the observation space
    obs_std: Obs
    reward: tuple[float, float]  # mean and standard deviation
    returns: tuple[float, float]  # smallest and largest undiscounted return of an episode
    longest: int  # steps of the longest episode


@dataclasses.dataclass(frozen=True)
class Spec:
    """What an algorithm has to know of the problem it is made for."""

    obs: gymnasium.Space[Any]
    action: gymnasium.Space[Any]  # bounded boxes are always rescaled to [-1, 1]
    envs: int = 1
    iterations: int = 1  # planned collect-and-learn rounds: what schedules run over
    log: Log | None = None  # where there is logged experience to learn from
    model: Callable[[Key[Array, ""]], Any] | None = None  # makes the language model to be taught
    channels: dict[str, Channel] = dataclasses.field(default_factory=dict)  # reported every step
    agents: Agents | None = None  # the axis behind ``env`` in observations and actions, if any
    judge: Callable[[Any, Any], tuple[Any, Any]] | None = None  # of goals: see sterling/goals.py
    unseen: tuple[str, ...] = ()  # entries of obs that only critics get: see sterling/unseen.py


@runtime_checkable
class World(Protocol):
    """Parallel copies of an environment: ``seeds x envs`` of them, stepped together.

    ``reset`` and ``step`` take one key per seed. With ``traced`` they may be called inside
    ``jit``; otherwise they are host calls on NumPy arrays and are stepped by a Python loop.
    With ``exact`` the state is a tree of arrays that can be saved and resumed bit for bit.
    """

    spec: Spec
    seeds: int
    traced: bool
    exact: bool

    def reset(self, keys: Key[Array, "seed"]) -> tuple[PyTree, Obs]:
        """Begin an episode in every env: the world's state, and ``(seed, env, ...)`` obs."""
        ...

    def step(self, state: PyTree, action: Action, keys: Key[Array, "seed"]) -> tuple[PyTree, Step]:
        """One step of every env with ``(seed, env, ...)`` actions."""
        ...

    def close(self) -> None:
        """Release what the world holds (processes, threads); it is not used afterwards."""
        ...


@runtime_checkable
class Algorithm(Protocol):
    """What an algorithm's file must offer; the module itself is the object.

    Beside it one of two ways to act in the ``(env, ...)`` of one seed. By what is seen alone:

        act(state, obs, key, explore) -> (action, extras)     # extras are recorded with the action

    Who goes by what is remembered too (actor.Past; experience/acting.py keeps it):

        memory(state, envs, key) -> memory                    # of nothing, ``(env, ...)``
        recall(state, past, obs, key, explore) -> (action, memory, extras)

    Rollouts of the latter have ``extras["begins"]``, the rows in which the memory began anew, and
    ``start``, the past before the first row.

    And what learns from each kind of batch that ``needs`` asks for, ``learn`` or, where a feed has
    a name, ``learn_NAME``: one iteration's learning from a rollout, or one update from a batch.

        learn(state, batch, key) -> (state, signals)

    Who learns from whole episodes (a feed of ``EPISODES``) lets each env act by a state of its own,
    without exploring; who dreams (a feed of ``DREAM``) imagines branches:

        member(state, key, env) -> state                      # env: its number, from 0
        imagine(state, obs, valid, key) -> branches           # a Record (time, branch, ...)

    Some offer more: ``value(state, obs)`` (``value(state, past, obs)`` of those who remember), the
    return expected from observations, in the learner's units; ``log_prob(state, obs, action)``;
    ``action_value(state, obs, action)``; ``advantage(state, batch)``, a number for each row of a
    rollout, which sources score rows by that are not learned from (experience/level_buffer.py);
    ``horizon(state)``, length n and discount of the n-step sums as they are now, where they change
    with the state (n is at most ``Feed.n_step``), or None; ``settled(config, log)``, the fields
    with what they leave to a log. Who knows of several agents (``Spec.agents``) says so by
    ``several_agents = True``; no other is made for such a world. Who has a critic that uses what
    policies do not see (``Spec.unseen``) says ``uses_unseen = True``; to no other, and to nobody
    who acts, it is given.
    """

    Config: ClassVar[type]

    @staticmethod
    def needs(config: Any) -> AnyNeeds:
        """The experience that ``learn`` is to be given."""
        ...

    @staticmethod
    def init(key: Key[Array, ""], spec: Spec, config: Any) -> Any:
        """A fresh state; raises :class:`Mistake` where the spec does not suit the algorithm."""
        ...


config = config_class.config  # the decorator of an algorithm's Config


class Mistake(Exception):
    """A wrong use of Sterling: one line that names the mistake and the remedy."""
