"""Let a human play episodes in a window, and record them as they end."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from sterling.data.recording.recorder import Recorder
from sterling.data_generation.demonstrations import action_bindings
from sterling.data_generation.demonstrations.action_bindings import ActionBindings, AxisBindings
from sterling.data_generation.demonstrations.play_window import PlayWindow
from sterling.lookup import user_imports
from sterling.lookup.name_suggestions import did_you_mean
from sterling.types import Mistake

DEVICES = ("keyboard", "gamepad")
USUAL_FPS = 30.0


@dataclasses.dataclass(frozen=True)
class DemonstrationOrder:
    """What to record, and how it is played."""

    environment: str  # a name known to Gymnasium, or a reference to a factory
    by: str = "keyboard"  # or "gamepad"
    keys: str | None = None  # "left=0,right=1"; None: those that the environment declares
    axes: str | None = None  # a gamepad's axes for each component, "0,-1"
    idle: str | None = None  # the action while nothing is pressed; None: 0
    wait: bool = False  # the environment waits until something is pressed
    fps: float | None = None  # steps per second; None: the environment's
    episodes: int | None = None  # None: until the window is closed
    seed: int | None = None  # of the first reset
    env_options: dict[str, Any] = dataclasses.field(default_factory=dict)


def record_demonstrations(order: DemonstrationOrder, out: Path) -> int:
    """Open a window, let a human play, and write every episode to ``out`` as it ends; return how
    many episodes were recorded now.

    Escape, or closing the window, ends it: an unfinished episode is recorded as truncated there.
    Backspace discards the episode and begins another. Raises Mistake if there is no display, for
    keys that mean nothing, and for an environment without pictures.
    """
    if order.by not in DEVICES:
        near = did_you_mean(order.by, DEVICES, "use keyboard or gamepad")
        raise Mistake(f"--by {order.by}: there is no such device{near}")
    if order.fps is not None and not order.fps > 0:
        raise Mistake(f"--fps must be above 0; got {order.fps:g}.")
    if order.episodes is not None and order.episodes < 1:
        raise Mistake(f"--episodes must be at least 1; got {order.episodes}.")
    window = PlayWindow(user_imports.short_name(order.environment), gamepad=order.by == "gamepad")
    with contextlib.closing(window), contextlib.closing(make_env(order)) as env:
        bindings = find_bindings(order, env, window)
        who = f"a human with a {order.by}"
        with Recorder(env, out, policy=who, environment=_name(env, order)) as recorder:
            before = recorder.episodes
            _play(order, recorder, window, bindings)
            recorder.finish()
            played = recorder.episodes - before
    return played


def make_env(order: DemonstrationOrder) -> gymnasium.Env[Any, Any]:
    """Make the environment with pictures."""
    options = {"render_mode": "rgb_array", **order.env_options}
    if user_imports.is_reference(order.environment):
        made = user_imports.call_factory(order.environment, **order.env_options)
        if not isinstance(made, gymnasium.Env):
            raise Mistake(f"{order.environment} makes no Gymnasium environment, which a window "
                          "needs. Name one.")  # fmt: skip
        return made
    try:
        return gymnasium.make(order.environment, **options)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        near = did_you_mean(order.environment, gymnasium.registry)
        raise Mistake(f"Gymnasium cannot make {order.environment!r} ({error}){near}") from error


def find_bindings(
    order: DemonstrationOrder, env: gymnasium.Env[Any, Any], window: PlayWindow
) -> ActionBindings | AxisBindings:
    """Return what keys, buttons or axes mean in this environment."""
    space = env.action_space
    if order.axes is not None and order.by != "gamepad":
        raise Mistake("--axes is for --by gamepad. Leave it out, or bind keys with --keys.")
    if order.keys is not None:
        return action_bindings.parse_bindings(order.keys, space, order.idle)
    is_box = isinstance(space, gymnasium.spaces.Box)
    if order.by == "gamepad" and (order.axes is not None or is_box):
        return action_bindings.parse_axes(order.axes, space)
    declared = action_bindings.declared_bindings(env, window.key_name, order.idle)
    if declared is None or order.by == "gamepad":
        action_bindings.check_space(space)
        example = action_bindings.example_keys(space, buttons=order.by == "gamepad")
        raise Mistake(
            f"{order.environment} does not say which keys mean which actions of "
            f"{' '.join(str(space).split())}. Add for example --keys {example}"
        )
    return declared


def _play(
    order: DemonstrationOrder,
    recorder: Recorder,
    window: PlayWindow,
    bindings: ActionBindings | AxisBindings,
) -> None:
    """Play episodes until enough are recorded or the window is closed."""
    fps = order.fps or float(recorder.metadata.get("render_fps") or USUAL_FPS)
    first, seed, pressed = recorder.episodes, order.seed, window.pressed
    while order.episodes is None or recorder.episodes - first < order.episodes:
        recorder.reset(seed=seed)
        seed, total, steps, over = None, 0.0, 0, False
        pressed.discard = False
        while not over:
            words = f"episode {recorder.episodes - first + 1}, step {steps}, return {total:g}"
            window.show(_picture(recorder, order), f"{words} (Esc ends, Backspace discards)")
            window.wait(fps)
            if pressed.quit:
                return
            if pressed.discard:
                recorder.discard()
                break
            if order.wait and not _is_asked(bindings, window):
                continue
            _, reward, terminated, truncated, _ = recorder.step(_action(bindings, window))
            total, steps, over = total + float(reward), steps + 1, terminated or truncated


def _is_asked(bindings: ActionBindings | AxisBindings, window: PlayWindow) -> bool:
    """Whether a key that means an action was pressed since the last step, or an axis is moved."""
    if isinstance(bindings, AxisBindings):
        moved = [abs(x) for x in window.pressed.axes.values()]
        return max(moved, default=0.0) > action_bindings.DEAD_ZONE
    return any(bindings.is_bound(key) for key in window.pressed.tapped)


def _action(bindings: ActionBindings | AxisBindings, window: PlayWindow) -> Any:
    keys = window.pressed.take_step()
    if isinstance(bindings, AxisBindings):
        return bindings.action(window.pressed.axes)
    return bindings.action(keys)


def _picture(env: gymnasium.Env[Any, Any], order: DemonstrationOrder) -> np.ndarray:
    made = env.render()
    if isinstance(made, list):
        made = made[-1] if made else None
    if not isinstance(made, np.ndarray):
        raise Mistake(
            f"{order.environment} renders no picture. Make it with render_mode='rgb_array'."
        )
    return made


def _name(env: gymnasium.Env[Any, Any], order: DemonstrationOrder) -> str | None:
    """Return the name to record, where Gymnasium does not know it."""
    if env.spec is not None:
        return None
    return user_imports.absolute_reference(order.environment)
