"""A film of a policy at work, in the very world that it was evaluated in.

EnvPool's tasks are drawn by EnvPool, and so are the classic ones, which are the same there; its
MuJoCo families need an OpenGL context, which is opened here (EGL, or else OSMesa). Gymnasium's
environments are drawn by their ``render``; grids of channels, as MinAtar's, are painted.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from sterling import envs, importing, keys
from sterling.envs import envpool
from sterling.envs.gymnasium import registered
from sterling.envs.registry import HOST_OPTIONS, find
from sterling.types import Action, Mistake, Obs, World

Act = Callable[[Obs], Action]
Notice = Callable[[float, bool], None]
Frame = UInt8[np.ndarray, "height width 3"]
FRAMES_PER_SECOND = 30.0  # where the environment does not say
SMALLEST = 320  # pixels; smaller pictures are enlarged by a whole factor
CELL = 32  # pixels of a grid's cell
NO_GL = (
    "drawing MuJoCo needs OpenGL without a screen, and neither EGL nor OSMesa works here; on "
    "Debian or Ubuntu: apt-get install libegl1 libgl1 (or: apt-get install libosmesa6)"
)
PALETTE = np.array(
    [[0, 114, 178], [230, 159, 0], [0, 158, 115], [213, 94, 0], [86, 180, 233], [240, 228, 66],
     [204, 121, 167], [255, 255, 255], [150, 150, 150], [120, 94, 240]], np.uint8,
)  # fmt: skip


class Scene:
    """A world of one environment, and how to look at it."""

    def __init__(self, world: World, look: Callable[[Obs], Frame], fps: float = FRAMES_PER_SECOND):
        self.world, self.look, self.fps = world, look, fps
        self.step = jax.jit(self.world.step) if self.world.traced else self.world.step

    def frames(self, act: Act, notice: Notice, steps: int, seed: int) -> Iterator[Frame]:
        """The first observation's picture, then one per step."""
        as_batch = jnp.asarray if self.world.traced else np.asarray
        seeds = jnp.asarray([seed], jnp.int32)
        state, obs = self.world.reset(keys.at(seeds, "film", 0))
        yield self.look(obs)
        for clock in range(steps):
            action = act(jax.tree.map(lambda x: np.asarray(x)[0], obs))
            batch = jax.tree.map(lambda x: as_batch(np.asarray(x)[None]), action)
            state, answer = self.step(state, batch, keys.at(seeds, "film-step", clock))
            obs = jax.block_until_ready(answer.obs)
            reward, last, mask = (
                np.asarray(x).item() for x in (answer.reward, answer.last, answer.mask)
            )
            notice(reward, last or not mask)
            yield self.look(obs)


def record(
    environment: Any,
    options: dict[str, Any],
    act: Act,
    path: str | Path,
    *,
    notice: Notice = lambda reward, last: None,
    steps: int = 500,
    seed: int = 0,
) -> Path:
    """Film ``steps`` steps of ``act`` into ``path``, an .mp4 or a .gif; returns the path.

    Args:
        environment: a name, or a user's own: a factory of Gymnasium environments is asked for
            pictures by ``render_mode="rgb_array"``, if it takes that.
        options: the environment's options, as for training.
        act: from observations ``(1, ...)`` to actions ``(1, ...)``, both as ``envs.make``'s worlds
            have them: actions of bounded boxes in [-1, 1].
        path: where to; folders are made.
        notice: is told each step's reward, and whether the next begins an episode.
        steps: environment steps, one frame each; episodes follow one another.
        seed: of the environment: the film begins with that seed's first evaluation episode.

    Raises Mistake where the environment cannot be drawn, OpenGL or a renderer is missing, or
    ``path`` cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in (".mp4", ".gif"):
        raise Mistake(f"a film is an .mp4 or a .gif; got {path.name!r}")
    if steps < 1:
        raise Mistake(f"a film has at least one step; got {steps}")
    scene = _scene(environment, options, seed)
    try:
        frames = scene.frames(act, notice, steps, seed)
        first = next(frames)  # what cannot be drawn leaves no file behind
        _make_room(path)
        with _writer(path, scene.fps) as film:
            film.append_data(_fit(first))
            for frame in frames:
                film.append_data(_fit(frame))
    finally:
        scene.world.close()
    return path


def _make_room(path: Path) -> None:
    """The film's folder, and its file, still empty."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("wb").close()
    except OSError as error:
        raise Mistake(f"{path} cannot be written ({error.strerror}); choose another") from error


def _scene(environment: Any, options: dict[str, Any], seed: int) -> Scene:
    """The world of ``environment`` with what draws it."""
    backend, name = find(environment)
    if backend == "factory":
        make, build = importing.load(name) if isinstance(name, str) else name, options
        if "render_mode" in inspect.signature(make).parameters:
            build = {**options, "render_mode": "rgb_array"}
        return _rendered(make, build, seed)
    if backend == "classic" and options.get("max_episode_steps") == 0:  # none; elsewhere no word
        options = {key: x for key, x in options.items() if key != "max_episode_steps"}
    if backend == "classic" and envpool.knows(name):  # the same world, with pictures
        backend, environment = "envpool", f"envpool:{name}"
    if backend in ("classic", "gymnasium"):  # without EnvPool, Gymnasium has the classic ones
        ours = {key: x for key, x in options.items() if key in ("stack", "flatten")}
        own = {k: v for k, v in options.items() if k not in (*HOST_OPTIONS, *ours)}
        make = functools.partial(registered, name, render_mode="rgb_array", **own)
        return _rendered(make, ours, seed)
    if backend == "pettingzoo":
        from sterling.envs import pettingzoo

        make = functools.partial(pettingzoo.build, name, render_mode="rgb_array")
        return _rendered(make, options, seed)
    world = envs.make(environment, (seed,), 1, purpose="evaluate", **options)
    if backend == "envpool":
        return Scene(world, _pool_camera(world, name))
    painted = getattr(getattr(world, "task", None), "painted", None)
    if painted is not None:  # a native world that says how it looks
        return Scene(world, lambda obs: _grid(painted(jax.tree.map(np.asarray, obs))), fps=10.0)
    if len(world.spec.obs.shape or ()) != 3:
        world.close()
        what = (
            f"{importing.title(environment)} cannot be drawn: what it shows is no grid of channels"
        )
        raise Mistake(f"{what}; only Gymnasium environments draw themselves")
    return Scene(world, _grid, fps=10.0)  # things move by whole cells


def _pool_camera(world: Any, name: str) -> Callable[[Obs], Frame]:
    """Looks at the pool inside ``world``."""
    while not isinstance(world, envpool.Pool):
        world = world.world
    pool: Any = world._pool
    pool._render_mode = "rgb_array"  # what EnvPool's own make(render_mode=...) does
    modules = [base.__module__ for base in type(pool).__mro__]
    is_mujoco = any(module.startswith("envpool.mujoco") for module in modules)
    context = _gl_context() if is_mujoco and sys.platform == "linux" else None

    def look(obs: Obs) -> Frame:
        if context is not None:
            context.make_current()
        try:
            return np.asarray(pool.render()[0])
        except (RuntimeError, OSError) as error:  # no renderer, or its pictures are not shipped
            raise Mistake(f"EnvPool cannot draw {name}: {error}") from error

    return look


def _rendered(factory: Callable[[], Any], options: dict[str, Any], seed: int) -> Scene:
    """A Gymnasium environment in this process, drawn by itself."""
    if sys.platform == "linux":
        os.environ.setdefault("MUJOCO_GL", "egl")  # its default would want a screen
    built: list[Any] = []  # the newest is the one that acts

    def build() -> Any:
        built.append(factory(**own))
        return built[-1]

    ours = ("stack", "flatten", *HOST_OPTIONS)
    own = {key: value for key, value in options.items() if key not in ours}
    rest = {key: value for key, value in options.items() if key in ours} | {"workers": 0}
    world = envs.make(build, (seed,), 1, purpose="evaluate", **rest)

    def look(obs: Obs) -> Frame:
        try:
            picture = built[-1].render()
        except (ImportError, gymnasium.error.Error) as error:  # a package is missing
            raise Mistake(f"the environment cannot be drawn: {error}") from error
        if not isinstance(picture, np.ndarray) or picture.ndim != 3:
            raise Mistake(
                "the environment's render() gives no picture; "
                'build it with render_mode="rgb_array"'
            )
        return picture[..., :3].astype(np.uint8)

    if not hasattr(built[-1], "render"):
        world.close()
        raise Mistake("a Task cannot be drawn; only Gymnasium environments draw themselves")
    fps = built[-1].metadata.get("render_fps") or FRAMES_PER_SECOND
    return Scene(world, look, float(fps))


def _grid(obs: Obs) -> Frame:
    """Each cell of a (height, width, channel) grid in the colour of its last channel that is on."""
    grid = np.asarray(obs)[0, 0] > 0
    last = grid.shape[-1] - 1 - grid[..., ::-1].argmax(-1)
    colours = np.where(grid.any(-1)[..., None], PALETTE[last % len(PALETTE)], np.uint8(20))
    return colours.repeat(CELL, 0).repeat(CELL, 1)


def _gl_context() -> Any:
    """An OpenGL context for this thread. EnvPool aborts the process if there is none.

    What works is found out in another process: OpenGL's binding can be chosen only once in each.
    """
    for backend in [os.environ["MUJOCO_GL"]] if os.environ.get("MUJOCO_GL") else ["egl", "osmesa"]:
        probe = f"import mujoco.{backend} as gl; gl.GLContext(8, 8).make_current()"
        asked = [sys.executable, "-c", probe]
        # close_fds=False spawns instead of forking, which a process with JAX's threads should not
        if not subprocess.run(asked, capture_output=True, check=False, close_fds=False).returncode:
            context = importlib.import_module(f"mujoco.{backend}").GLContext(64, 64)
            context.make_current()
            return context
    raise Mistake(NO_GL)


def _fit(frame: Frame) -> UInt8[np.ndarray, "tall wide 3"]:
    """Large enough to look at, and of even size, which H.264 asks for."""
    factor = max(1, -(-SMALLEST // min(frame.shape[:2])))
    frame = frame.repeat(factor, 0).repeat(factor, 1)
    return np.pad(frame, [(0, frame.shape[0] % 2), (0, frame.shape[1] % 2), (0, 0)], mode="edge")


def _writer(path: Path, fps: float) -> Any:
    """Takes frames by ``append_data``."""
    import imageio.v2 as imageio

    if path.suffix.lower() == ".gif":
        return imageio.get_writer(path, duration=1000 / fps, loop=0)
    return imageio.get_writer(path, fps=fps, macro_block_size=1)
