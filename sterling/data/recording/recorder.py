"""Record the episodes of any Gymnasium loop: the wrapper :class:`Recorder`."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from sterling.data.dataset_metadata import Facts, Source, check_reference_scores
from sterling.data.recording.recording_folder import RecordingFolder, episode_block
from sterling.data.space_json import Space, column_spaces, fits_float32
from sterling.envs.hosted.shared_memory import space_leaves
from sterling.system.shown_values import shown_value
from sterling.types import Mistake

RENDERING = ("render_mode",)  # arguments of an environment that do not change what is recorded


class Recorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Gymnasium wrapper that writes every episode into a dataset when it ends.

        with sterling.data.Recorder(gymnasium.make("CartPole-v1"), "data/mine") as env:
            obs, info = env.reset()
            ...                          # any loop: a script, a controller, another library

    Whenever the program ends or crashes, the folder is a dataset of the episodes that were
    complete: ``sterling data check data/mine``, ``sterling train iql data/mine``. An existing
    recording, or dataset in Sterling's format, of the same environment is appended to. An episode
    that is not over at ``reset`` or ``close`` counts as truncated there.

    Observations and actions may be dicts, tuples and pictures. They are recorded as this wrapper
    sees them: put it outside of wrappers that change them, if the policy sees the changed ones.

    Args:
        env: one Gymnasium environment (no vector environment).
        folder: of the dataset.
        policy: a description of who acts, kept with the episodes.
        environment: the environment's name, if it is not the id that Gymnasium made it by.
        reference: the returns that count as 0 and as 1.

    Raises Mistake for spaces without arrays (Text, Graph, Sequence), for a folder that holds
    something else, and if another Recorder writes to it.
    """

    def __init__(
        self,
        env: Any,
        folder: str | Path,
        *,
        policy: str = "recorded",
        environment: str | None = None,
        reference: tuple[float, float] | None = None,
    ):
        if isinstance(env, gymnasium.vector.VectorEnv) or not isinstance(env, gymnasium.Env):
            raise Mistake(
                f"Recorder takes one Gymnasium environment; got {type(env).__name__}. Wrap every "
                "single environment, each with a folder of its own."
            )
        super().__init__(env)
        check_reference_scores(reference)
        self._obs_parts = column_spaces("obs", env.observation_space)
        self._action_parts = column_spaces("action", env.action_space)
        name, options = _made_by(env)
        facts = Facts(
            name if environment is None else environment,
            reference,
            (Source(policy, "recorded", "sterling.data.Recorder"),),
            options if environment is None else {},
        )
        spaces = env.observation_space, env.action_space
        self.recording = RecordingFolder(Path(folder).expanduser(), *spaces, facts)
        self._columns: dict[str, list[np.ndarray]] | None = None
        self._steps, self._closed = 0, False

    @property
    def episodes(self) -> int:
        """Return the number of episodes recorded in the folder, by earlier Recorders too."""
        return self.recording.episodes

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; an unfinished one is recorded as truncated."""
        self._store()
        obs, info = self.env.reset(seed=seed, options=options)
        names = (*self._obs_parts, *self._action_parts, "reward", "discount")
        self._columns, self._steps = {name: [] for name in names}, 0
        space = self.env.observation_space
        self._append(self._copies("observation", self._obs_parts, space, obs))
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment; at the end of an episode write it."""
        if self._columns is None:
            raise Mistake("the episode is over; call reset() before the next step")
        # copied before the step: the environment may change the action in place
        acted = self._copies("action", self._action_parts, self.env.action_space, action)
        obs, reward, terminated, truncated, info = self.env.step(action)
        seen = self._copies("observation", self._obs_parts, self.env.observation_space, obs)
        self._append({**acted, **seen})
        self._columns["reward"].append(_one_number(reward))
        self._columns["discount"].append(np.asarray(not terminated, np.float32))
        self._steps += 1
        if terminated or truncated:
            self._store()
        return obs, reward, terminated, truncated, info

    def finish(self) -> None:
        """Record the running episode as truncated; call ``reset`` next."""
        self._store()

    def discard(self) -> None:
        """Forget the steps of the running episode; call ``reset`` next."""
        self._columns, self._steps = None, 0

    def close(self) -> None:
        """Record an unfinished episode as truncated, and close the environment."""
        if self._closed:
            return
        self._closed = True
        try:
            self._store()
        finally:
            self.recording.close()
            self.env.close()

    def _store(self) -> None:
        """Write the running episode, if it has a step."""
        columns, steps = self._columns, self._steps
        self._columns, self._steps = None, 0
        if columns is not None and steps:
            self.recording.append(episode_block(columns, steps))

    @staticmethod
    def _copies(
        what: str, parts: dict[str, Space], space: Space, value: Any
    ) -> dict[str, np.ndarray]:
        """Return a copy of every part of an observation or action, by column."""
        copies = {}
        for (path, leaf), name in zip(space_leaves(space), parts, strict=True):
            try:
                part = functools.reduce(lambda inside, key: inside[key], path, value)
                array = np.array(part, leaf.dtype)
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise Mistake(
                    f"the {what} {shown_value(value)} does not fit {leaf} ({error})"
                ) from error
            if array.shape != tuple(leaf.shape or ()):
                raise Mistake(
                    f"the {what} has shape {array.shape} in {name!r}, and its space "
                    f"{tuple(leaf.shape or ())}. Correct the environment."
                )
            copies[name] = array
        return copies

    def _append(self, row: dict[str, np.ndarray]) -> None:
        assert self._columns is not None
        for name, value in row.items():
            self._columns[name].append(value)


def _one_number(reward: Any) -> np.ndarray:
    given = np.asarray(reward)
    if given.dtype.kind not in "biuf":
        raise Mistake(f"a reward must be a real number to be recorded; got {shown_value(reward)}")
    if not fits_float32(given).all():
        raise Mistake(
            f"a reward must be finite in float32 to be recorded; got {shown_value(reward)}"
        )
    made = given.astype(np.float32)
    if made.size != 1:
        raise Mistake(f"a reward must be one number to be recorded; got {shown_value(reward)}")
    return made.reshape(())


def _made_by(env: gymnasium.Env[Any, Any]) -> tuple[str, dict[str, Any]]:
    """Return the id that Gymnasium made an environment by, and its options that JSON can hold."""
    spec = env.spec
    if spec is None:
        return "", {}
    options = {key: value for key, value in spec.kwargs.items() if key not in RENDERING}
    registered = gymnasium.registry.get(spec.id)
    if registered is not None and registered.max_episode_steps != spec.max_episode_steps:
        options["max_episode_steps"] = spec.max_episode_steps or -1
    if registered is not None:
        usual = registered.kwargs
        options = {key: value for key, value in options.items() if usual.get(key) != value}
    try:
        return spec.id, json.loads(json.dumps(options))
    except (TypeError, ValueError):  # an option that is an object
        return spec.id, {}
