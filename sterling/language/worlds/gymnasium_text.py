"""Small Gymnasium environments as conversations: observations are told, actions are said."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from sterling.language.scene import Message, Stage
from sterling.language.task import check_level, final_answer
from sterling.naming import hint
from sterling.types import Mistake

LARGEST = 16  # numbers of an observation that are told without a ``describe``
PENALTY = 0.05  # off the reward, for each answer that is no action
DISCOUNT = 0.99  # of value iteration

_WORDS: dict[str, tuple[str, ...]] = {
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
    "Blackjack": ("stick", "hit"),
    "CartPole": ("left", "right"),
}
# Returns that count as 0 and as 1, from the number of turns.
_RETURNS: dict[str, Callable[[int], tuple[float, float]]] = {
    "FrozenLake": lambda turns: (0.0, 1.0),
    "FrozenLake8x8": lambda turns: (0.0, 1.0),
    "CliffWalking": lambda turns: (-float(turns), -13.0),
    "Taxi": lambda turns: (-float(turns), 8.0),
    "Blackjack": lambda turns: (-1.0, 1.0),
    "CartPole": lambda turns: (0.0, float(turns)),
}


class TextGym:
    """An environment with numbered actions, one action for each thing said.

    The first message is the actions and the first observation, ``left/down/right/up? 0``; then
    each message is an observation. Actions are said as words or as numbers, as a task's
    :func:`~sterling.language.task.final_answer`. The last verdict holds the whole reward: the
    episode's return, with ``returns[0]`` counted as 0 and ``returns[1]`` as 1, cut off at both,
    less 0.05 for each answer that was no action (which is answered by the actions, and does not
    move the world). Reasons: "moved", "invalid", "ended", "cut".

    Args:
        environment: a Gymnasium id with a discrete action space.
        turns: answers after which an episode is cut.
        describe: observation to text; by default ``str``, and numbers to two decimals for an
            array of at most 16.
        words: a word for each action.
        returns: the returns that count as 0 and as 1; known for a few environments.
        **options: the environment's own, such as ``is_slippery=False``.

    Raises Mistake where the environment is not known or does not fit.
    """

    seats, levels = 1, range(1)

    def __init__(
        self,
        environment: str,
        turns: int = 30,
        describe: Callable[[Any], str] | None = None,
        words: Sequence[str] = (),
        returns: tuple[float, float] | None = None,
        **options: Any,
    ):
        self.name, self.turns = f"gym:{environment}", turns
        self.make = functools.partial(_make, environment, options)
        env = self.make()
        kind, _, _ = environment.rpartition("/")[2].partition("-")
        if not isinstance(env.action_space, gymnasium.spaces.Discrete):
            raise Mistake(
                f"the actions of {environment} are {env.action_space}; use a discrete one"
            )
        self.start, count = int(env.action_space.start), int(env.action_space.n)
        known = _WORDS.get(kind, ())
        self.words = tuple(words) or (
            known if len(known) == count else tuple(map(str, range(count)))
        )
        if len(self.words) != count:
            raise Mistake(f"{environment} has {count} actions, not {len(self.words)}; name each")
        if returns is None and kind not in _RETURNS:
            raise Mistake(f"what is a good return in {environment}? say returns=(worst, best)")
        self.low, self.high = returns or _RETURNS[kind](turns)
        if not self.low < self.high or turns < 1:
            raise Mistake(f"{turns} turns and returns {self.low} to {self.high} leave no choice")
        if describe is None and _size(env.observation_space) > LARGEST:
            raise Mistake(f"observations of {environment} are large; say how to describe them")
        self.describe = describe or _describe
        env.close()

    def begin(self, seed: int, level: int) -> _Episode:
        """An episode from the first observation of this seed."""
        check_level(self.name, self.levels, level)
        return _Episode(self, self.make(), seed)


class PlannedGym(TextGym):
    """A text world whose environment tells its probabilities, so that it can be solved."""

    def solve(self, scene: _Episode) -> str:
        """The best action of the present state, by value iteration over ``env.P``."""
        state = int(getattr(scene.env.unwrapped, "s"))  # noqa: B009 - no part of the interface
        return self.words[int(np.argmax(self._values[state]))]

    @functools.cached_property
    def _values(self) -> np.ndarray:
        env = self.make()
        outcomes = getattr(env.unwrapped, "P")  # noqa: B009 - as above
        env.close()
        return _iterate(outcomes, len(self.words))


def text_gym(environment: str, **options: Any) -> TextGym:
    """The text world of an environment, with ``solve`` where its probabilities are known."""
    _check(environment, **{name: options.get(name) for name in ("describe", "words", "returns")})
    world = TextGym(environment, **options)
    env = world.make()
    env.reset(seed=0)
    known = isinstance(getattr(env.unwrapped, "P", None), dict) and hasattr(env.unwrapped, "s")
    env.close()
    return PlannedGym(environment, **options) if known else world


class _Episode(Stage):
    def __init__(self, world: TextGym, env: gymnasium.Env[Any, Any], seed: int):
        super().__init__()
        self.world, self.env, self.total, self.invalid = world, env, 0.0, 0
        obs, _ = env.reset(seed=seed % 2**31)
        self.ask(0, Message("user", f"{'/'.join(world.words)}? {world.describe(obs)}"))

    def hear(self, seat: int, text: str) -> None:
        action, ended, cut = _action(text, self.world.words), False, False
        told, reason = f"say {'/'.join(self.world.words)}", "invalid"
        if action is None:
            self.invalid += 1
        else:
            obs, reward, ended, cut, _ = self.env.step(self.world.start + action)
            self.total += float(reward)
            told, reason = self.world.describe(obs), "moved"
        if not (ended or cut or len(self.verdicts[seat]) + 1 == self.world.turns):
            self.judge(seat, 0.0, reason)
            return self.ask(seat, Message("user", told))
        self.env.close()
        self.judge(seat, self._worth(), "ended" if ended else "cut")

    def _worth(self) -> float:
        share = (self.total - self.world.low) / (self.world.high - self.world.low)
        share = min(1.0, share) if math.isfinite(share) else 0.0
        return max(0.0, share - PENALTY * self.invalid)


def _check(environment: str, describe: Any, words: Any, returns: Any) -> None:
    """Raise Mistake for arguments of other kinds (None: not given): command lines give anything."""
    if describe is not None and not callable(describe):
        said = "it takes an observation and returns a text, so it is given in Python alone"
        raise Mistake(f"describe={describe!r:.40} of {environment} is no function; {said}")
    if words is not None and (isinstance(words, str) or not _listed(words, str)):
        said = "give a word for each action, such as words=('left','right')"
        raise Mistake(f"words={words!r:.40} of {environment} are no texts; {said}")
    if returns is not None and not (_listed(returns, int, float) and len(returns) == 2):
        said = "give the worst and the best, such as returns=(-200,-100)"
        raise Mistake(f"returns={returns!r:.40} of {environment} are not two numbers; {said}")


def _listed(values: Any, *kinds: type) -> bool:
    """Whether it is a sequence of such values; a truth is no number."""
    if not isinstance(values, Sequence):
        return False
    return all(isinstance(each, kinds) and not isinstance(each, bool) for each in values)


def _make(environment: str, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    try:
        return gymnasium.make(environment, disable_env_checker=True, **options)
    except gymnasium.error.UnregisteredEnv as error:
        near = hint(environment, gymnasium.registry, "see gymnasium.registry for the known ones")
        raise Mistake(f"Gymnasium has no {environment!r}{near}") from error
    except Exception as error:  # whatever the environment's own code says to its options
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        said = "correct its options" if options else "see what it needs"
        raise Mistake(f"Gymnasium cannot make {environment}: {reason}; {said}") from error


def _action(text: str, words: Sequence[str]) -> int | None:
    said = final_answer(text).lower()
    names = {word.lower(): number for number, word in enumerate(words)}
    numbers = {str(number): number for number in range(len(words))}
    return names.get(said, numbers.get(said))


def _size(space: gymnasium.Space[Any]) -> int:
    if isinstance(space, gymnasium.spaces.Box):
        return math.prod(space.shape)
    if isinstance(space, gymnasium.spaces.Tuple):
        return sum(map(_size, space.spaces))
    return 1


def _describe(obs: Any) -> str:
    if isinstance(obs, tuple):
        return " ".join(map(_describe, obs))
    if isinstance(obs, np.ndarray):
        return " ".join(f"{number:.2f}" for number in obs.ravel().tolist())
    return str(obs)


def _iterate(outcomes: dict[int, Any], actions: int) -> np.ndarray:
    """The values of ``(state, action)``, from lists of (probability, next, reward, ended)."""
    values, change = np.zeros((len(outcomes), actions)), 1.0
    while change > 1e-6:
        best, before = values.max(axis=1), values.copy()
        for state, choices in outcomes.items():
            for action, branches in choices.items():
                values[state, action] = sum(
                    chance * (reward + DISCOUNT * best[after] * (not ended))
                    for chance, after, reward, ended in branches
                )
        change = float(np.abs(values - before).max())
    return values
