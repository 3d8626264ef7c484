"""A film of a policy at work.

EnvPool's tasks are drawn by EnvPool itself, so that the film shows the very world that was trained
in; its MuJoCo families need an OpenGL context, which is opened here (EGL, or else OSMesa).
Gymnasium environments are drawn by their ``render``, MinAtar by painting its grid of channels.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from sterling import envs
from sterling.types import Action, Mistake, Obs

Frame = UInt8[np.ndarray, "height width 3"]
FRAMES_PER_SECOND = 30  # where the environment does not say
SMALLEST = 320  # pixels; smaller pictures are enlarged by a whole factor
CELL = 32  # pixels of a grid's cell
NO_GL = (
    "drawing MuJoCo needs OpenGL without a screen, and neither EGL nor OSMesa works here; on Debian "
    "or Ubuntu: apt-get install libegl1 libgl1 (or: apt-get install libosmesa6)"
)
PALETTE = np.array(
    [[0, 114, 178], [230, 159, 0], [0, 158, 115], [213, 94, 0], [86, 180, 233], [240, 228, 66],
     [204, 121, 167], [255, 255, 255], [150, 150, 150], [120, 94, 240]], np.uint8,
)  # fmt: skip


class Scene(Protocol):
    """One copy of an environment that can be looked at; observations have a leading axis of 1.

    The step after an episode's end ignores its action and starts the next episode.
    """

    fps: float

    def reset(self) -> Obs: ...

    def step(self, action: Action) -> Obs: ...

    def frame(self) -> Frame: ...

    def close(self) -> None: ...


def record(
    environment: str | Callable[[], Any],
    options: dict[str, Any],
    act: Callable[[Obs], Action],
    path: str | Path,
    *,
    steps: int = 500,
    seed: int = 0,
) -> Path:
    """Film ``steps`` steps of ``act`` into ``path``, an .mp4 or a .gif; returns the path.

    Args:
        environment: a name, or a factory of Gymnasium environments with ``render_mode="rgb_array"``.
        options: the environment's options, as for training.
        act: from observations ``(1, ...)`` to actions ``(1, ...)`` in the environment's own units.
        path: where to; folders are made.
        steps: environment steps, one frame each; episodes follow one another.
        seed: of the environment.

    Raises Mistake where the environment cannot be drawn, or a package or OpenGL is missing.
    """
    path = Path(path)
    if path.suffix.lower() not in (".mp4", ".gif"):
        raise Mistake(f"a film is an .mp4 or a .gif; got {path.name!r}")
    scene = _scene(environment, options, seed)
    try:
        frames = _frames(scene, act, steps)
        first = next(frames)  # what cannot be drawn leaves no file behind
        path.parent.mkdir(parents=True, exist_ok=True)
        with _writer(path, scene.fps) as film:
            film.append_data(_fit(first))
            for frame in frames:
                film.append_data(_fit(frame))
    finally:
        scene.close()
    return path


def _scene(environment: str | Callable[[], Any], options: dict[str, Any], seed: int) -> Scene:
    """The way to look at ``environment``."""
    if not isinstance(environment, str):
        return GymnasiumScene(environment, seed)
    backend = envs.backend(environment)
    if backend == "envpool":
        return PoolScene(environment, options, seed)
    if backend == "gymnax":
        return GridScene(environment, options, seed)
    return GymnasiumScene(lambda: _gymnasium(environment, options), seed)


def _frames(scene: Scene, act: Callable[[Obs], Action], steps: int) -> Iterator[Frame]:
    """The first observation's frame, then one per step."""
    obs = scene.reset()
    yield scene.frame()
    for _ in range(steps):
        obs = scene.step(act(obs))
        yield scene.frame()


class PoolScene:
    """An EnvPool task."""

    fps = FRAMES_PER_SECOND

    def __init__(self, name: str, options: dict[str, Any], seed: int):
        import envpool

        self._name, self._context = name, None
        if sys.platform == "linux" and _is_mujoco(name):
            self._context = _gl_context()
        self._pool = envpool.make(
            name, env_type="gymnasium", num_envs=1, seed=seed, render_mode="rgb_array", **options
        )

    def reset(self) -> Obs:
        """Start the first episode."""
        return self._pool.reset()[0]

    def step(self, action: Action) -> Obs:
        """One step; EnvPool itself starts the next episode on the step after an end."""
        return self._pool.step(action)[0]

    def frame(self) -> Frame:
        """EnvPool's picture."""
        try:
            return np.asarray(self._pool.render()[0])
        except (RuntimeError, OSError) as error:  # no renderer, or its pictures are not shipped
            raise Mistake(f"EnvPool cannot draw {self._name}: {error}") from error

    def close(self) -> None:
        """Release the pool and the OpenGL context."""
        self._pool.close()
        if self._context is not None:
            self._context.free()


class GymnasiumScene:
    """Whatever a factory makes that has Gymnasium's interface."""

    def __init__(self, factory: Callable[[], Any], seed: int):
        if sys.platform == "linux":
            os.environ.setdefault("MUJOCO_GL", "egl")  # its default would want a screen
        self._env, self._seed, self._over = factory(), seed, False
        self.fps = float(self._env.metadata.get("render_fps") or FRAMES_PER_SECOND)

    def reset(self) -> Obs:
        """Start the first episode."""
        return self._batch(self._env.reset(seed=self._seed)[0])

    def step(self, action: Action) -> Obs:
        """One step, or the start of the next episode."""
        if self._over:
            self._over = False
            return self._batch(self._env.reset()[0])
        own = jax.tree.map(lambda x: x[0], action)
        obs, _, terminated, truncated, _ = self._env.step(own)
        self._over = terminated or truncated
        return self._batch(obs)

    def frame(self) -> Frame:
        """The environment's own picture."""
        try:
            picture = self._env.render()
        except ImportError as error:
            raise Mistake(f"the environment cannot be drawn: {error}") from error
        if not isinstance(picture, np.ndarray) or picture.ndim != 3:
            raise Mistake(
                "the environment's render() gives no picture; "
                'make it with render_mode="rgb_array" in the factory'
            )
        return picture[..., :3].astype(np.uint8)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    @staticmethod
    def _batch(obs: Any) -> Obs:
        return jax.tree.map(lambda x: np.asarray(x)[None], obs)


class GridScene:
    """A gymnax world whose observation is a grid of channels, as MinAtar's."""

    fps = 10.0  # cells move by whole steps

    def __init__(self, name: str, options: dict[str, Any], seed: int):
        self._world = envs.make(name, (seed,), 1, purpose="play", **options)
        if len(self._world.spec.obs.shape or ()) != 3:
            raise Mistake(f"{name} has no picture: its observation is no grid of channels")
        self._keys = jax.vmap(jax.random.key)(jnp.asarray([seed]))
        self._step = jax.jit(self._world.step)

    def reset(self) -> Obs:
        """Start the first episode."""
        self._state, self._obs = self._world.reset(self._keys)
        return self._obs[0]

    def step(self, action: Action) -> Obs:
        """One step; the world itself starts the next episode."""
        self._keys = jax.vmap(lambda key: jax.random.fold_in(key, 1))(self._keys)
        batch = jnp.asarray(action)[None]
        self._state, answer = self._step(self._state, batch, self._keys)
        self._obs = answer.obs
        return self._obs[0]

    def frame(self) -> Frame:
        """Each cell in the colour of its last channel that is on."""
        grid = np.asarray(self._obs[0, 0]) > 0
        last = grid.shape[-1] - 1 - grid[..., ::-1].argmax(-1)
        colours = np.where(grid.any(-1)[..., None], PALETTE[last % len(PALETTE)], np.uint8(20))
        return colours.repeat(CELL, 0).repeat(CELL, 1)

    def close(self) -> None:
        """Close the world."""
        self._world.close()


def _gymnasium(name: str, options: dict[str, Any]) -> Any:
    import gymnasium

    return gymnasium.make(name, render_mode="rgb_array", **options)


def _is_mujoco(name: str) -> bool:
    """Whether EnvPool draws this task with MuJoCo, by the package its task comes from."""
    from envpool.registration import registry

    return str(registry.specs[name][0]).startswith("envpool.mujoco")


def _gl_context() -> Any:
    """An OpenGL context for this thread. EnvPool aborts the process if there is none.

    What works is found out in another process: OpenGL's binding can be chosen only once in each.
    """
    for backend in [os.environ["MUJOCO_GL"]] if os.environ.get("MUJOCO_GL") else ["egl", "osmesa"]:
        probe = f"import mujoco.{backend} as gl; gl.GLContext(8, 8).make_current()"
        asked = [sys.executable, "-c", probe]
        if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
            context = importlib.import_module(f"mujoco.{backend}").GLContext(64, 64)
            context.make_current()
            return context
    raise Mistake(NO_GL)


def _fit(frame: Frame) -> Frame:
    """Large enough to look at, and of even size, which H.264 asks for."""
    factor = max(1, -(-SMALLEST // min(frame.shape[:2])))
    frame = frame.repeat(factor, 0).repeat(factor, 1)
    return np.pad(frame, [(0, frame.shape[0] % 2), (0, frame.shape[1] % 2), (0, 0)], mode="edge")


def _writer(path: Path, fps: float) -> Any:
    """Takes frames by ``append_data``."""
    try:
        import imageio.v2 as imageio
        import imageio_ffmpeg  # noqa: F401 (ships the encoder)
    except ImportError as error:
        raise Mistake(
            'writing films needs a package more: pip install "sterling-rl[video]"'
        ) from error
    if path.suffix.lower() == ".gif":
        return imageio.get_writer(path, duration=1000 / fps, loop=0)
    return imageio.get_writer(path, fps=fps, macro_block_size=1)
