"""Sterling's shared types: record, step, spec, world, algorithm, needs.

The axes of arrays are always in the order ``seed, time, env, ...``. An algorithm is written for one
seed, and sees ``time, env, ...`` (a rollout) or ``batch, ...`` (transitions).
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
from sterling.needs.algorithm_needs import AnyNeeds as AnyNeeds
from sterling.needs.algorithm_needs import Comparisons as Comparisons
from sterling.needs.algorithm_needs import Generations as Generations
from sterling.needs.algorithm_needs import Needs as Needs
from sterling.needs.algorithm_needs import Rollouts as Rollouts
from sterling.needs.algorithm_needs import Sequences as Sequences
from sterling.needs.algorithm_needs import Texts as Texts
from sterling.needs.algorithm_needs import Transitions as Transitions
from sterling.needs.beside_laws import Anywhere as Anywhere
from sterling.needs.beside_laws import Beside as Beside
from sterling.needs.beside_laws import Later as Later
from sterling.needs.beside_laws import SameTask as SameTask
from sterling.needs.feed import Dreams as Dreams
from sterling.needs.feed import Feed as Feed
from sterling.needs.feed import Labels as Labels
from sterling.problem.agent_axis import Agents
from sterling.problem.channels import Channel
from sterling.problem.episode_summaries import Summary
from sterling.system.mistake import Mistake as Mistake

Obs: TypeAlias = PyTree[Any]  # an array, or a dict/tuple of arrays, as the observation space says
Action: TypeAlias = PyTree[Any]
AnyArray: TypeAlias = Array | np.ndarray  # worlds on the host return NumPy arrays


class Record(eqx.Module):
    """Experience: one row per world step; all leaves share the leading axes.

    ``discount`` is 0 if the episode terminated, and 1 if it went on *or was truncated*, so
    ``reward + gamma * discount * value(next_obs)`` is right for terminations and time limits alike.
    It is -1 if the opponent moves next in a zero-sum game, where the reward is the mover's: the
    same equations then play two-player games in turns.
    ``last`` marks the last row of an episode (terminated or truncated): no trace may cross it.
    ``mask`` is False for rows that are not experience: the step in which a world resets, crashes or
    returns NaN, and all further steps until its reset. Weight every loss by it.
    """

    obs: Obs
    action: Action
    reward: Float[Array, "..."]
    discount: Float[Array, "..."]  # 0: the episode terminated; 1: it goes on, or was truncated
    next_obs: Obs  # the true successor, also at a termination or truncation
    last: Bool[Array, "..."]  # the last row of an episode
    mask: Bool[Array, "..."]  # False: no experience, such as the step in which a world resets
    extras: dict[str, Array] = dataclasses.field(default_factory=dict)  # log_prob, weight, channels
    start: PyTree = None  # memory: the Past before the first row; episodes: PopulationInfo
    # further Records (``Feed.beside``) or a frozen model (``Generations.teacher``), by name
    beside: dict[str, Any] = dataclasses.field(default_factory=dict)


class Score(eqx.Module):
    """The reward and end that episode statistics count, if they differ from the learner's."""

    reward: Float[AnyArray, "..."]  # not clipped
    last: Bool[AnyArray, "..."]  # the game is over, not only one of its lives


class Step(eqx.Module):
    """A world's response to an action; leaves are ``(seed, env, ...)``.

    After ``last`` the *next* step ignores its action, resets, and returns ``mask`` False and the
    first observation of the new episode. So ``obs`` is always the true successor of the previous
    observation, except in masked rows, and no world hides a final observation.
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
        """Return the reward and end that episode statistics count."""
        return Score(self.reward, self.last) if self.score is None else self.score


class Signals(eqx.Module):
    """A learner's output of one update; ``heed`` passes it to the source (e.g. priorities)."""

    metrics: dict[str, Float[Array, "..."]]  # "area/name" -> a number (for each seed), for the log
    samples: dict[str, Array] = dataclasses.field(default_factory=dict)  # one number per sample
    # what the replay keeps of the batch's rows (``Needs.keep``), as it is to be from now on
    stored: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Log:
    """Statistics of logged experience, computed before training."""

    obs_mean: Obs  # mean of every number of an observation, float64, as the space's tree
    obs_std: Obs  # standard deviation of each
    reward: tuple[float, float]  # mean and standard deviation
    returns: tuple[float, float]  # smallest and largest undiscounted return of an episode
    longest: int  # steps of the longest episode


@dataclasses.dataclass(frozen=True)
class Spec:
    """The problem that an algorithm is created for: spaces, sizes and optional extras."""

    obs: gymnasium.Space[Any]  # the observations' space
    action: gymnasium.Space[Any]  # bounded boxes are always rescaled to [-1, 1]
    envs: int = 1  # copies of the environment for each seed
    iterations: int = 1  # planned iterations (collect and learn): the length of schedules
    log: Log | None = None  # statistics of the log, if there is one
    model: Callable[[Key[Array, ""]], Any] | None = None  # creates the language model to train
    channels: dict[str, Channel] = dataclasses.field(default_factory=dict)  # reported every step
    summaries: dict[str, Summary] = dataclasses.field(default_factory=dict)  # of evaluations
    agents: Agents | None = None  # the axis behind ``env`` in observations and actions, if any
    # of goals: (achieved, desired) -> (reward, discount), see sterling/problem/goal_obs.py
    judge: Callable[[Any, Any], tuple[Any, Any]] | None = None
    limit: int | None = None  # steps after which an episode is truncated; None: never, or unknown
    alternating: bool = False  # whether two sides of a zero-sum game move in turn
    level_space: gymnasium.Space[Any] | None = None  # of levels, if the task names it
    # entries of obs that policies do not get: see sterling/problem/critic_only_obs.py
    unseen: tuple[str, ...] = ()
    critic_sees: bool = False  # whether critics get them, of algorithms whose critics can
    # how observations become features: a preset's name, or the user's (factory, name); None: the
    # usual encoder (see sterling/nets/obs_encoder.py)
    encoder: Any = None


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
        """Begin an episode in every env; return the state and ``(seed, env, ...)`` observations."""
        ...

    def step(self, state: PyTree, action: Action, keys: Key[Array, "seed"]) -> tuple[PyTree, Step]:
        """Step every env with ``(seed, env, ...)`` actions; return the state and the Step."""
        ...

    def close(self) -> None:
        """Release the world's processes and threads; it is not used afterwards."""
        ...


@runtime_checkable
class Algorithm(Protocol):
    """The functions that an algorithm's file must offer; the module itself is the object.

    It acts in the ``(env, ...)`` of one seed in one of two ways. From the observation alone:

        act(state, obs, key, explore) -> (action, extras)     # extras are recorded with the action

    Or with a memory (actor.Past; experience/acting.py carries it):

        memory(state, envs, key) -> memory                    # an empty one, ``(env, ...)``
        recall(state, past, obs, key, explore) -> (action, memory, extras)

    One that plans may also offer ``prior``, which acts without planning and takes and returns what
    ``act``, or ``recall``, does. ``forgetful = True`` says that ``recall`` may act with an empty
    memory at any time, so that ``run.policy`` does. One that trains a language model has neither:
    the model in its State, ``state.model``, answers what a sampler is asked (language/engine).

    Rollouts with a memory have ``extras["begins"]``, the rows in which the memory was reset, and
    ``start``, the past before the first row; so have batches of a replay whose needs keep "memory".

    For each feed of ``needs`` it has a function that learns from the batches: ``learn``, or
    ``learn_NAME`` if the feed has a name. A call learns from one rollout, or makes one update from
    one batch:

        learn(state, batch, key) -> (state, signals)

    With a feed of ``EPISODES`` each env acts with a state of its own, without exploring; with a
    feed of ``DREAM`` the algorithm rolls out its model from real rows ``(branch, ...)``:

        member(state, key, env) -> state                      # env: its number, from 0
        imagine(state, rows, valid, key) -> branches    # a Record (time, branch, ...), with extras

    An algorithm that adapts to a task (``Rollouts(length, adapt=n)``; with a replay or a log
    ``Needs(adapt=n)``) makes the state for it from the first n rows of a task,
    ``(time, env, ...)`` (experience/rollouts/adaptation_rollout.py):

        adapt(state, batch, key) -> state

    Optional functions: ``value(state, obs)``, or if it is drawn
    ``value(state, obs, key)`` (with a memory ``value(state, past, obs, key)``), the
    expected return in the learner's units; ``log_prob(state, obs, action)``;
    ``action_value(state, obs, action)``; ``advantage(state, batch)``, one number per row of a
    rollout, by which a source scores rows that are not learned from
    (experience/levels/level_buffer.py); ``n_step_now(state)``, the current (n, discount) of n-step
    returns if they change with the state (n is at most ``Feed.n_step``), or None;
    ``complete_config(config, log)``, the Config with the fields filled in that it takes from a log;
    ``held_out_metrics(state, batch)``, the loss (``{"loss": ...}``) of texts that are held out, and
    other metrics of theirs: lower is better, but for names that end in ``accuracy``.
    ``several_agents = True`` says that it handles several agents (``Spec.agents``); other
    algorithms are refused for such a world. ``uses_unseen = True``
    says that its critic uses entries that policies do not see (``Spec.unseen``); other algorithms
    do not get these entries, and no function that acts gets them.
    """

    Config: ClassVar[type]

    @staticmethod
    def needs(config: Any) -> AnyNeeds:
        """Return which batches ``learn`` needs."""
        ...

    @staticmethod
    def init(key: Key[Array, ""], spec: Spec, config: Any) -> Any:
        """Return a new state; raise :class:`Mistake` if the spec does not suit the algorithm."""
        ...


config = config_class.config  # the decorator of an algorithm's Config
