"""Film evaluation episodes: the evaluation is played again where its environments can be drawn."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sterling.envs.registry import find_backend
from sterling.experience.rollouts.whole_episodes import EpisodeState
from sterling.report.episodes.episodes_file import EpisodeId, EvaluatedEpisodes
from sterling.report.pictures.envpool_camera import registered_frame_rate
from sterling.report.pictures.policy_video import Scene, enlarge_frame, make_scene, open_film
from sterling.system.terminal_messages import print_notice
from sterling.training.assembly.build_run import check_has_environment, make_world
from sterling.training.evaluation.episode_replay import is_same_episode
from sterling.training.evaluation.evaluate_policy import evaluate
from sterling.training.trained_run import TrainedRun
from sterling.types import Action, Mistake, Step


def film_episodes(
    run: TrainedRun, made: EvaluatedEpisodes, wanted: Sequence[EpisodeId], folder: Path
) -> dict[EpisodeId, Path]:
    """Film the ``wanted`` episodes into ``folder``, as ``seed-S-episode-N.mp4``; return the paths.

    The policies play the evaluation again in environments that are drawn. A line on standard error
    names films that show another episode than the recorded one. Raise :class:`Mistake` where the
    environment cannot be drawn.
    """
    check_has_environment(run.settings)
    episodes = made.columns["return"].shape[1]
    scene = _evaluation_scene(run, int(made.facts["envs"]))
    paths = {which: folder / f"seed-{which[0]}-episode-{which[1]}.mp4" for which in wanted}
    seeds = list(run.settings.seeds)
    try:
        with contextlib.ExitStack() as films:
            camera = _Camera(scene, seeds, paths, films)
            numbers = jnp.asarray(seeds, jnp.int32)
            found = evaluate(run.agent, scene.world, numbers, episodes,
                             run.settings.evaluate_limit, recorder=camera)  # fmt: skip
    finally:
        scene.world.close()
    again = dataclasses.replace(made, columns=found)
    for which in wanted:
        if not is_same_episode(made, again, which):
            print_notice(
                f"{paths[which]} shows another episode (return {again.value('return', which):.4g}):"
                " the environment did not repeat the recorded one"
            )
    return paths


class _Camera:
    """Draws the wanted episodes while they are played."""

    def __init__(
        self,
        scene: Scene,
        seeds: list[int],
        paths: dict[EpisodeId, Path],
        films: contextlib.ExitStack,
    ):
        self._scene, self._seeds, self._paths, self._films = scene, seeds, paths, films
        self._running: dict[tuple[int, int], Any] = {}  # writers by (seed index, env)

    def begin_round(self, number: int) -> None:
        """Open the films of this round's episodes."""
        envs = self._scene.world.spec.envs
        for which, path in self._paths.items():
            turn, env = divmod(which[1], envs)
            if turn == number:
                film = self._films.enter_context(open_film(path, self._scene.fps))
                self._running[self._seeds.index(which[0]), env] = film

    def notice(self, before: EpisodeState, action: Action, step: Step) -> None:
        """Add a picture after the step to every film whose episode was running."""
        running = ~np.asarray(before.over) & np.asarray(step.mask)
        jax.block_until_ready(step.obs)
        for (at, env), film in self._running.items():
            if running[at, env]:
                film.append_data(enlarge_frame(self._picture(step.obs, at, env)))

    def end_round(self, number: int, returns: Any) -> None:
        """Forget the round's films; they are closed at the end."""
        self._running = {}

    def _picture(self, obs: Any, at: int, env: int) -> Any:
        own = jax.tree.map(lambda x: np.asarray(x)[at : at + 1, env : env + 1], obs)
        return self._scene.look(own, at * self._scene.world.spec.envs + env)


def _evaluation_scene(run: TrainedRun, copies: int) -> Scene:
    """Return the environments of the evaluation, and how to draw them."""
    settings = run.settings
    backend, name = find_backend(settings.environment)
    if backend == "classic":
        world = make_world(settings, "evaluate", copies)
        rate = registered_frame_rate(name)
        return Scene(world, _classic_picture(name, settings.env_options), rate)
    strategy = settings.program_strategy
    return make_scene(settings.environment, settings.env_options, settings.seeds, copies, strategy)


def _classic_picture(name: str, options: dict[str, Any]) -> Callable[[Any, int], Any]:
    """Return a function that draws a classic environment from its observation, by Gymnasium's
    renderer: Gymnasium's state follows from it."""
    import gymnasium

    if options.get("stack", 1) not in (1, None):
        raise Mistake("Stacked observations of classic environments cannot be drawn. Use --page.")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # its renderer needs no screen
    try:
        drawn: Any = gymnasium.make(name, render_mode="rgb_array").unwrapped
        drawn.reset(seed=0)
    except (ImportError, gymnasium.error.Error) as error:
        raise Mistake(f"the environment cannot be drawn: {error}") from error

    def look(obs: Any, env: int) -> Any:
        drawn.state = _classic_state(name, np.asarray(obs, np.float64).reshape(-1))
        try:
            return np.asarray(drawn.render())[..., :3]
        except (ImportError, gymnasium.error.Error) as error:  # pygame is missing
            raise Mistake(f"the environment cannot be drawn: {error}") from error

    return look


def _classic_state(name: str, obs: np.ndarray) -> Any:
    """Return the state of Gymnasium's environment that has this observation."""
    if name.startswith("Acrobot"):
        cos1, sin1, cos2, sin2, *speeds = obs
        return np.array([np.arctan2(sin1, cos1), np.arctan2(sin2, cos2), *speeds])
    if name.startswith("Pendulum"):
        return np.array([np.arctan2(obs[1], obs[0]), obs[2]])
    return obs
