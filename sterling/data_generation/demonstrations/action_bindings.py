"""Which keys, buttons and axes mean which actions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sterling.types import Mistake

DEAD_ZONE = 0.1  # of an axis: smaller values count as 0
KEYS_FORM = 'write KEY=ACTION,KEY=ACTION, as --keys "left=0,right=1,left+space=2"'
RESERVED = {"escape": "ends the recording", "backspace": "discards the episode"}


@dataclasses.dataclass(frozen=True)
class ActionBindings:
    """The actions of keys and of buttons (``b0``, ``b1``, ``up``...), pressed alone or together.

    Choices: the binding with most of the held keys counts, and among equals the one pressed last.
    Boxes: the actions of all held keys are added, and clipped to the bounds.
    """

    space: spaces.Space[Any]
    actions: Mapping[frozenset[str], np.ndarray]
    idle: np.ndarray  # while no key is held

    def action(self, held: Sequence[str]) -> Any:
        """Return the action for the keys that are held, in the order in which they were pressed."""
        if isinstance(self.space, spaces.Box):
            keys = [frozenset([key]) for key in held]
            parts = [self.actions[key] for key in keys if key in self.actions]
            total = np.sum(parts, axis=0) if parts else self.idle
            return np.clip(total, self.space.low, self.space.high).astype(self.space.dtype)
        met = [keys for keys in self.actions if keys <= set(held)]
        if not met:
            return self._choice(self.idle)
        best = max(met, key=lambda keys: (len(keys), max(map(held.index, keys), default=-1)))
        return self._choice(self.actions[best])

    def _choice(self, value: np.ndarray) -> Any:
        if isinstance(self.space, spaces.Discrete):
            return int(value)
        return value.astype(self.space.dtype)

    def is_bound(self, key: str) -> bool:
        """Whether a key is part of any binding."""
        return any(key in keys for keys in self.actions)


@dataclasses.dataclass(frozen=True)
class AxisBindings:
    """The components of a box action that the axes of a gamepad set."""

    space: spaces.Box
    axes: tuple[tuple[int, bool], ...]  # axis and whether it is inverted, for every component

    def action(self, values: Mapping[int, float]) -> np.ndarray:
        """Return the action for the axes' values in [-1, 1]; the rest of an axis is the middle of
        a component's range, or 0 where it has no bounds."""
        moved = np.array([(-1.0 if turned else 1.0) * values.get(axis, 0.0)
                          for axis, turned in self.axes])  # fmt: skip
        moved = np.where(np.abs(moved) < DEAD_ZONE, 0.0, moved).reshape(self.space.shape)
        low, high = self.space.low.astype(np.float64), self.space.high.astype(np.float64)
        bounded = np.isfinite(low) & np.isfinite(high)
        low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
        made = (low + high) / 2 + moved * (high - low) / 2
        return np.clip(made, self.space.low, self.space.high).astype(self.space.dtype)


def parse_bindings(text: str, space: spaces.Space[Any], idle: str | None) -> ActionBindings:
    """Return the bindings that a user typed: "left=0,right=1" or, for several components,
    "w=0:1,s=0:-1". Raises Mistake for actions outside the space."""
    check_space(space)
    found: dict[frozenset[str], np.ndarray] = {}
    for word in filter(None, (part.strip() for part in text.replace(" ", ",").split(","))):
        keys, equals, value = word.rpartition("=")
        names = frozenset(key.strip().lower() for key in keys.split("+") if key.strip())
        if not equals or not names:
            raise Mistake(f"--keys: {word!r} names no key or no action; {KEYS_FORM}")
        if reserved := names & RESERVED.keys():
            key = next(iter(reserved))
            raise Mistake(f"--keys: {key} {RESERVED[key]}. Choose another key.")
        if isinstance(space, spaces.Box) and len(names) > 1:
            raise Mistake(f"--keys {word}: the actions of held keys are added. Bind single keys.")
        if names in found:
            raise Mistake(f"--keys binds {keys} twice. Leave one out.")
        found[names] = parse_action(value, space, f"--keys {word}")
    if not found:
        raise Mistake(f"--keys binds nothing; {KEYS_FORM}")
    return ActionBindings(space, found, _idle_action(space, idle))


def declared_bindings(
    env: gymnasium.Env[Any, Any], name_of_key: Any, idle: str | None
) -> ActionBindings | None:
    """Return the bindings that an environment declares by ``get_keys_to_action``, as Atari's do and
    ``gymnasium.utils.play`` reads them; None if it declares none."""
    declare = getattr(env.unwrapped, "get_keys_to_action", None)
    if declare is None:
        return None
    check_space(env.action_space)
    found: dict[frozenset[str], np.ndarray] = {}
    rest = None
    for keys, action in declare().items():
        codes = [ord(key) if isinstance(key, str) else int(key) for key in keys]
        names = frozenset(name_of_key(code) for code in codes)
        if names:
            found[names] = np.asarray(int(action))
        else:
            rest = str(int(action))
    return ActionBindings(env.action_space, found, _idle_action(env.action_space, idle or rest))


def parse_axes(text: str | None, space: spaces.Space[Any]) -> AxisBindings:
    """Return the axes that a user typed, "0,-1" for axis 0 and axis 1 inverted; by default axis i
    sets component i."""
    if not isinstance(space, spaces.Box):
        raise Mistake("--axes is for real actions; bind the buttons of choices with --keys b0=1")
    size = int(np.prod(space.shape))
    words = [word.strip() for word in text.split(",")] if text else [str(at) for at in range(size)]
    if len(words) != size or not all(word.removeprefix("-").isdigit() for word in words):
        raise Mistake(f"--axes must name an axis for each of the {size} components, as --axes=0,-1")
    axes = tuple((int(word.removeprefix("-")), word.startswith("-")) for word in words)
    return AxisBindings(space, axes)


def parse_action(text: str, space: spaces.Space[Any], where: str) -> np.ndarray:
    """Parse an action, its components separated by colons; raise Mistake if it lies outside."""
    shape = tuple(space.shape or ())
    try:
        made = np.array([float(part) for part in text.split(":")])
    except ValueError as error:
        raise Mistake(f"{where}: {text!r} is no action; components are separated by :") from error
    size = int(np.prod(shape))
    if made.size != size:
        raise Mistake(f"{where}: an action has {size} components, and {text!r} {made.size}")
    made = made.reshape(shape)
    valid = isinstance(space, spaces.Box) or bool((made == np.rint(made)).all())
    typed = np.asarray(made, space.dtype)
    if not valid or not space.contains(typed if shape else typed[()]):
        raise Mistake(f"{where}: the action {text} lies outside {' '.join(str(space).split())}")
    return typed


def check_space(space: spaces.Space[Any]) -> None:
    """Raise Mistake for actions that keys cannot name."""
    if not isinstance(
        space, (spaces.Discrete, spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)
    ):
        raise Mistake(
            f"actions of {type(space).__name__} cannot be bound to keys. Flatten them with a "
            "wrapper."
        )


def example_keys(space: spaces.Space[Any], *, buttons: bool = False) -> str:
    """Return an example of --keys for an action space, with keys or a gamepad's buttons."""
    keys = [f"b{at}" for at in range(5)] if buttons else ["left", "right", "up", "down", "space"]
    if isinstance(space, spaces.Discrete):
        count = min(int(space.n), len(keys))
        return ",".join(f"{keys[at]}={at + int(space.start)}" for at in range(count))
    rest = ":0" * (int(np.prod(space.shape or ())) - 1)
    low = "-1" if isinstance(space, spaces.Box) else "0"
    return f"{keys[0]}={low}{rest},{keys[1]}=1{rest}"


def _idle_action(space: spaces.Space[Any], text: str | None) -> np.ndarray:
    if text is not None:
        return parse_action(text, space, "--idle")
    if isinstance(space, spaces.Box):
        zero = np.clip(np.zeros(space.shape), space.low, space.high)
        return zero.astype(space.dtype)
    start = getattr(space, "start", 0)
    return np.asarray(np.zeros(space.shape or (), np.int64) + start)
