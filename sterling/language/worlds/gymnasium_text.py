"""Small Gymnasium environments as conversations: observations are messages, actions are answers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from sterling.language.scene import BaseScene, Message
from sterling.language.task import check_level, final_answer
from sterling.lookup.name_suggestions import did_you_mean
from sterling.system.mistake import Mistake
from sterling.system.shown_values import shown_value

MAX_NUMBERS = 16  # of an observation, without a ``describe``
INVALID_PENALTY = 0.05  # subtracted from the reward for each answer that is not an action
DISCOUNT = 0.99  # of value iteration

_ACTION_WORDS: dict[str, tuple[str, ...]] = {
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
    "Blackjack": ("stick", "hit"),
    "CartPole": ("left", "right"),
}
# Returns that give reward 0 and reward 1, as functions of the number of turns.
_RETURN_RANGES: dict[str, Callable[[int], tuple[float, float]]] = {
    "FrozenLake": lambda turns: (0.0, 1.0),
    "FrozenLake8x8": lambda turns: (0.0, 1.0),
    "CliffWalking": lambda turns: (-float(turns), -13.0),
    "Taxi": lambda turns: (-float(turns), 8.0),
    "Blackjack": lambda turns: (-1.0, 1.0),
    "CartPole": lambda turns: (0.0, float(turns)),
}


class TextGym:
    """An environment with discrete actions, one action for each answer.

    The first message is the actions and the first observation, ``left/down/right/up? 0``; then
    each message is an observation. Actions are words or numbers, as a task's
    :func:`~sterling.language.task.final_answer`. The last verdict holds the whole reward: the
    episode's return, scaled so that ``returns[0]`` gives 0 and ``returns[1]`` gives 1, at most 1,
    less 0.05 for each answer that was not an action (which is answered with the list of actions
    and does not step the environment), and at least 0. Reasons: "moved", "invalid", "ended", "cut".

    Args:
        environment: a Gymnasium id with a discrete action space.
        turns: answers after which an episode is truncated.
        describe: turns an observation into text; by default ``str``, and for an array of at most
            16 numbers these to two decimals.
        words: a word for each action.
        returns: the returns that give reward 0 and reward 1; known for a few environments.
        **options: the environment's own, such as ``is_slippery=False``.

    Raises Mistake if the environment is unknown or not suitable.
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
        self.make = functools.partial(_make_environment, environment, options)
        env = self.make()
        kind, _, _ = environment.rpartition("/")[2].partition("-")
        if not isinstance(env.action_space, gymnasium.spaces.Discrete):
            raise Mistake(
                f"the actions of {environment} are {env.action_space}; use one that is Discrete"
            )
        self.start, count = int(env.action_space.start), int(env.action_space.n)
        self.words = tuple(words) or _name_actions(kind, count)
        if len(self.words) != count:
            raise Mistake(
                f"{environment} has {count} actions, not {len(self.words)}; give a word for each"
            )
        if returns is None and kind not in _RETURN_RANGES:
            raise Mistake(
                f"the range of returns of {environment} is not known; give returns=(worst, best)"
            )
        self.low, self.high = returns or _RETURN_RANGES[kind](turns)
        if not self.low < self.high or turns < 1:
            raise Mistake(
                f"{turns} turns and returns {self.low} to {self.high} are not valid; "
                "turns must be at least 1, and the second return the larger one"
            )
        if describe is None and _observation_size(env.observation_space) > MAX_NUMBERS:
            raise Mistake(
                f"observations of {environment} are large; give describe, a function that turns "
                "an observation into a text"
            )
        self.describe = describe or _describe_observation
        env.close()

    def begin(self, seed: int, level: int) -> _Episode:
        """Return an episode that begins with the first observation of this seed."""
        check_level(self.name, self.levels, level)
        return _Episode(self, self.make(), seed)


class SolvableGym(TextGym):
    """A text world whose environment has known transition probabilities, so that it can be
    solved."""

    def solve(self, scene: _Episode) -> str:
        """Return the best action of the present state, by value iteration over ``env.P``."""
        state = int(getattr(scene.env.unwrapped, "s"))  # noqa: B009 - not a part of the interface
        return self.words[int(np.argmax(self._values[state]))]

    @functools.cached_property
    def _values(self) -> np.ndarray:
        env = self.make()
        outcomes = getattr(env.unwrapped, "P")  # noqa: B009 - as above
        env.close()
        return _value_iteration(outcomes, len(self.words))


def make_text_gym(environment: str, **options: Any) -> TextGym:
    """Return the text world of an environment, with ``solve`` if its probabilities are known."""
    _check_arguments(
        environment, **{name: options.get(name) for name in ("describe", "words", "returns")}
    )
    world = TextGym(environment, **options)
    env = world.make()
    env.reset(seed=0)
    known = isinstance(getattr(env.unwrapped, "P", None), dict) and hasattr(env.unwrapped, "s")
    env.close()
    return SolvableGym(environment, **options) if known else world


class _Episode(BaseScene):
    def __init__(self, world: TextGym, env: gymnasium.Env[Any, Any], seed: int):
        super().__init__()
        self.world, self.env, self.total, self.invalid = world, env, 0.0, 0
        obs, _ = env.reset(seed=seed % 2**31)
        self.ask(0, Message("user", f"{'/'.join(world.words)}? {world.describe(obs)}"))

    def hear(self, seat: int, text: str) -> None:
        action, ended, cut = _parse_action(text, self.world.words), False, False
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
        return max(0.0, share - INVALID_PENALTY * self.invalid)


def _check_arguments(environment: str, describe: Any, words: Any, returns: Any) -> None:
    """Raise Mistake for arguments of the wrong type (None: not given), which command lines may
    pass."""
    if describe is not None and not callable(describe):
        remedy = "it takes an observation and returns a text, so it can only be given in Python"
        raise Mistake(
            f"describe={shown_value(describe)} of {environment} is not a function; {remedy}"
        )
    if words is not None and (isinstance(words, str) or not _is_sequence_of(words, str)):
        remedy = "give a word for each action, such as words=('left','right')"
        raise Mistake(f"words={shown_value(words)} of {environment} are not texts; {remedy}")
    if returns is not None and not (_is_sequence_of(returns, int, float) and len(returns) == 2):
        remedy = "give the worst and the best, such as returns=(-200,-100)"
        raise Mistake(
            f"returns={shown_value(returns)} of {environment} are not two numbers; {remedy}"
        )


def _is_sequence_of(values: Any, *kinds: type) -> bool:
    """Whether ``values`` is a sequence of values of these types; a bool is not a number."""
    if not isinstance(values, Sequence):
        return False
    return all(isinstance(each, kinds) and not isinstance(each, bool) for each in values)


def _make_environment(environment: str, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    try:
        return gymnasium.make(environment, disable_env_checker=True, **options)
    except gymnasium.error.UnregisteredEnv as error:
        near = did_you_mean(
            environment, gymnasium.registry, "see gymnasium.registry for the known ones"
        )
        raise Mistake(f"Gymnasium has no {environment!r}{near}") from error
    except Exception as error:  # whatever the environment's own code says to its options
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        remedy = "correct its options" if options else "see what it needs"
        raise Mistake(f"Gymnasium cannot make {environment}: {reason}; {remedy}") from error


def _name_actions(kind: str, count: int) -> tuple[str, ...]:
    """Return the words known for an environment's actions, else their numbers."""
    known = _ACTION_WORDS.get(kind, ())
    return known if len(known) == count else tuple(map(str, range(count)))


def _parse_action(text: str, words: Sequence[str]) -> int | None:
    answer = final_answer(text).lower()
    names = {word.lower(): number for number, word in enumerate(words)}
    numbers = {str(number): number for number in range(len(words))}
    return names.get(answer, numbers.get(answer))


def _observation_size(space: gymnasium.Space[Any]) -> int:
    if isinstance(space, gymnasium.spaces.Box):
        return math.prod(space.shape)
    if isinstance(space, gymnasium.spaces.Tuple):
        return sum(map(_observation_size, space.spaces))
    return 1


def _describe_observation(obs: Any) -> str:
    if isinstance(obs, tuple):
        return " ".join(map(_describe_observation, obs))
    if isinstance(obs, np.ndarray):
        return " ".join(f"{number:.2f}" for number in obs.ravel().tolist())
    return str(obs)


def _value_iteration(outcomes: dict[int, Any], actions: int) -> np.ndarray:
    """Return the values of ``(state, action)``, from lists of (probability, next, reward,
    ended)."""
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
