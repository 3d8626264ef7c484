"""Film a policy in the environment that it was evaluated in.

EnvPool's tasks are drawn by EnvPool, and so are the classic ones, which are the same there
(``envpool_camera.py``). Gymnasium's environments are drawn by their ``render``; grids of channels,
as MinAtar's, are painted.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree, UInt8

from sterling import envs, random_keys
from sterling.envs.compiled import envpool_env
from sterling.envs.env_options import HOST_OPTIONS
from sterling.envs.hosted.registered_env import make_registered_env
from sterling.envs.registry import find_backend
from sterling.envs.summaries import OPTION as SUMMARIES
from sterling.lookup import user_imports
from sterling.report.pictures.envpool_camera import (
    FRAMES_PER_SECOND,
    endless_floors,
    envpool_camera,
    extend_built_floors,
    frame_rate,
)
from sterling.system.terminal_messages import print_notice
from sterling.types import Action, Mistake, Obs, World

Act = Callable[[Obs], Action]
Look = Callable[[Obs, int], "Frame"]
OnStep = Callable[[float, bool], None]
Adapt = Callable[[World, Key[Array, "seed"]], tuple[PyTree, Obs]]
Frame = UInt8[np.ndarray, "height width 3"]
MIN_GIF_MILLISECONDS = 20  # of a picture; browsers show shorter ones for 100
TIMED_FROM, TIMED_TO = 2, 12  # pictures whose time is measured; the first may compile programs
SILENT_SECONDS = 5.0  # a film that takes longer says so
MIN_PIXELS = 320  # pixels; smaller pictures are enlarged by a whole factor
CELL_PIXELS = 32  # pixels of a grid's cell
PALETTE = np.array(
    [[0, 114, 178], [230, 159, 0], [0, 158, 115], [213, 94, 0], [86, 180, 233], [240, 228, 66],
     [204, 121, 167], [255, 255, 255], [150, 150, 150], [120, 94, 240]], np.uint8,
)  # fmt: skip


class Scene:
    """Environments, and the function that draws one of them, given its observation ``(1, 1, ...)``
    and its number among all, seed by seed."""

    def __init__(self, world: World, look: Look, fps: float = FRAMES_PER_SECOND):
        self.world, self.look, self.fps = world, look, fps
        self.step = jax.jit(self.world.step) if self.world.traced else self.world.step

    def frames(
        self, act: Act, notice: OnStep, adapt: Adapt | None, steps: int, seed: int
    ) -> Iterator[Frame]:
        """Yield a picture of the first observation, then one per step. With ``adapt`` all episodes
        are in the level that the agent has adapted to."""
        as_batch = jnp.asarray if self.world.traced else np.asarray
        seeds = jnp.asarray([seed], jnp.int32)
        keys = random_keys.for_seeds(seeds, "film", 0)
        state, obs = self.world.reset(keys) if adapt is None else adapt(self.world, keys)
        yield self.look(obs, 0)
        for clock in range(steps):
            action = act(jax.tree.map(lambda x: np.asarray(x)[0], obs))
            batch = jax.tree.map(lambda x: as_batch(np.asarray(x)[None]), action)
            state, answer = self.step(
                state, batch, random_keys.for_seeds(seeds, "film-step", clock)
            )
            obs = jax.block_until_ready(answer.obs)
            reward, last, mask = (
                np.asarray(x).item() for x in (answer.reward, answer.last, answer.mask)
            )
            notice(reward, last or not mask)
            yield self.look(obs, 0)


def record_film(
    environment: Any,
    options: dict[str, Any],
    act: Act,
    path: str | Path,
    *,
    notice: OnStep = lambda reward, last: None,
    adapt: Adapt | None = None,
    steps: int = 500,
    seed: int = 0,
) -> Path:
    """Film ``steps`` steps of ``act`` into ``path``, an .mp4 or a .gif; returns the path.

    Args:
        environment: a name, or the user's own object; a factory of Gymnasium environments gets
            ``render_mode="rgb_array"`` if it has that parameter.
        options: the environment's options, as for training.
        act: maps observations ``(1, ...)`` to actions ``(1, ...)``, in the form of the worlds
            that ``envs.make`` returns: actions of bounded boxes in [-1, 1].
        path: the file to write; missing folders are created.
        notice: called with each step's reward, and whether the next step begins an episode.
        adapt: adapts the agent to a level of the world, given a random key ``(1,)``; returns the
            world's state and observation at the start of an episode in that level. None: the
            film begins with ``world.reset``.
        steps: number of environment steps, one frame each; episodes follow one another.
        seed: the environment's seed: the film begins with its first evaluation episode.

    Raises Mistake where the environment cannot be drawn, OpenGL or a renderer is missing, or
    ``path`` cannot be written.
    """
    path = Path(path)
    check_film_name(path)
    if steps < 1:
        raise Mistake(f"a film has at least one step; got {steps}")
    scene = make_scene(environment, options, (seed,))
    try:
        frames = scene.frames(act, notice, adapt, steps, seed)
        first = next(frames)  # fails before a file is created
        with open_film(path, scene.fps) as film:
            film.append_data(enlarge_frame(first))
            for count, frame in enumerate(frames, start=1):
                if count == TIMED_FROM:
                    begun = time.monotonic()
                if count == TIMED_TO:
                    _print_time_left(
                        (time.monotonic() - begun) / (count - TIMED_FROM), steps - count
                    )
                film.append_data(enlarge_frame(frame))
    finally:
        scene.world.close()
    return path


def _print_time_left(seconds: float, pictures: int) -> None:
    """Say how long the rest of a film takes, if that is long, given one picture's seconds."""
    if seconds * pictures > SILENT_SECONDS:
        print_notice(f"drawing {pictures:,} more pictures, about {seconds * pictures:.0f} s")


def check_film_name(path: Path) -> None:
    """Raise :class:`Mistake` for a file that is no film."""
    if path.suffix.lower() not in (".mp4", ".gif"):
        raise Mistake(f"a film is an .mp4 or a .gif; got {path.name!r}")


def _create_file(path: Path) -> None:
    """Create the film's folder and an empty file; raises Mistake where that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("wb").close()
    except OSError as error:
        raise Mistake(f"{path} cannot be written ({error.strerror}); choose another") from error


def make_scene(
    environment: Any,
    options: dict[str, Any],
    seeds: tuple[int, ...],
    copies: int = 1,
    strategy: str = "vmap",
) -> Scene:
    """Build ``copies`` environments of every seed, as they are evaluated, and the function that
    draws them. Classic ones are EnvPool's or Gymnasium's, whose episodes begin differently."""
    many = seeds, copies
    backend, name = find_backend(environment)
    if backend == "factory":
        make, build = user_imports.load(name) if isinstance(name, str) else name, options
        if "render_mode" in inspect.signature(make).parameters:
            build = {**options, "render_mode": "rgb_array"}
        return _gymnasium_scene(make, build, many)
    if backend == "classic" and options.get("max_episode_steps") == 0:  # no limit; others omit it
        options = {key: x for key, x in options.items() if key != "max_episode_steps"}
    if backend == "classic" and envpool_env.knows(name):  # the same world, with pictures
        backend, environment = "envpool", f"envpool:{name}"
    if backend in ("classic", "gymnasium"):  # without EnvPool, Gymnasium has the classic ones
        ours = {key: x for key, x in options.items() if key in ("stack", "flatten")}
        own = {k: v for k, v in options.items() if k not in (*HOST_OPTIONS, SUMMARIES, *ours)}
        make = functools.partial(make_registered_env, name, render_mode="rgb_array", **own)
        return _gymnasium_scene(make, ours, many)
    if backend == "pettingzoo":
        from sterling.envs.hosted import pettingzoo_env

        make = functools.partial(pettingzoo_env.make_env, name, render_mode="rgb_array")
        return _gymnasium_scene(make, options, many)
    how: dict[str, Any] = {"purpose": "evaluate", "strategy": strategy, **options}
    if backend == "envpool":
        fps = frame_rate(name, options)
        with endless_floors(name):
            world = envs.make(environment, *many, **how)
        return Scene(world, envpool_camera(world, name), fps)
    world = envs.make(environment, *many, **how)
    return _painted_scene(world, environment)


def _painted_scene(world: World, environment: Any) -> Scene:
    """Return the scene of a world whose observations, or the pictures it defines, are grids."""
    painted = getattr(getattr(world, "task", None), "grid_image", None)
    if painted is not None:  # a native environment that defines its picture
        return Scene(
            world, lambda obs, env: _paint_grid(painted(jax.tree.map(np.asarray, obs))), fps=10.0
        )
    if len(world.spec.obs.shape or ()) != 3:
        world.close()
        raise Mistake(
            f"{user_imports.display_name(environment)} cannot be drawn: its observations are not "
            "a grid of channels; only Gymnasium environments draw themselves"
        )
    return Scene(world, lambda obs, env: _paint_grid(obs), fps=10.0)  # objects move by whole cells


def _gymnasium_scene(
    factory: Callable[[], Any], options: dict[str, Any], many: tuple[tuple[int, ...], int]
) -> Scene:
    """Build Gymnasium environments in this process, drawn by their own ``render``; ``many``: the
    seeds, and the copies of each."""
    if sys.platform == "linux":
        os.environ.setdefault("MUJOCO_GL", "egl")  # its default needs a screen
    built: list[Any] = []  # the newest ones are stepped
    count = len(many[0]) * many[1]

    def build() -> Any:
        built.append(factory(**own))
        extend_built_floors(built[-1])
        return built[-1]

    ours = ("stack", "flatten", SUMMARIES, *HOST_OPTIONS)
    own = {key: value for key, value in options.items() if key not in ours}
    rest = {key: value for key, value in options.items() if key in ours} | {"workers": 0}
    world = envs.make(build, *many, purpose="evaluate", **rest)

    def look(obs: Obs, env: int) -> Frame:
        try:
            picture = built[env - count].render()
        except (ImportError, gymnasium.error.Error, NotImplementedError) as error:
            why = str(error) or "it has no render()"
            raise Mistake(f"the environment cannot be drawn: {why}") from error
        if not isinstance(picture, np.ndarray) or picture.ndim != 3:
            remedy = 'build it with render_mode="rgb_array"'
            raise Mistake(f"the environment's render() returns no picture; {remedy}")
        return picture[..., :3].astype(np.uint8)

    if not hasattr(built[-1], "render"):
        world.close()
        raise Mistake("a Task cannot be drawn; only Gymnasium environments draw themselves")
    fps = built[-1].metadata.get("render_fps") or FRAMES_PER_SECOND
    return Scene(world, look, float(fps))


def _paint_grid(obs: Obs) -> Frame:
    """Paint each cell of a (height, width, channel) grid by its last active channel."""
    grid = np.asarray(obs)[0, 0] > 0
    last = grid.shape[-1] - 1 - grid[..., ::-1].argmax(-1)
    colours = np.where(grid.any(-1)[..., None], PALETTE[last % len(PALETTE)], np.uint8(20))
    return colours.repeat(CELL_PIXELS, 0).repeat(CELL_PIXELS, 1)


def enlarge_frame(frame: Frame) -> UInt8[np.ndarray, "tall wide 3"]:
    """Enlarge a frame to a visible size with even sides, which H.264 requires."""
    factor = max(1, -(-MIN_PIXELS // min(frame.shape[:2])))
    frame = frame.repeat(factor, 0).repeat(factor, 1)
    return np.pad(frame, [(0, frame.shape[0] % 2), (0, frame.shape[1] % 2), (0, 0)], mode="edge")


def open_film(path: Path, fps: float) -> Any:
    """Create a film's file and return a writer that takes frames by ``append_data``; raises Mistake
    where the file cannot be written."""
    import imageio.v2 as imageio

    _create_file(path)

    if path.suffix.lower() == ".gif":
        return imageio.get_writer(path, duration=max(1000 / fps, MIN_GIF_MILLISECONDS), loop=0)
    return imageio.get_writer(path, fps=fps, macro_block_size=1)
