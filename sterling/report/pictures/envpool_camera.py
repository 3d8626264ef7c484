"""Draw EnvPool's environments: its own renderer, an OpenGL context, and floors without an end."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from sterling.envs.compiled import envpool_env
from sterling.types import Mistake

NO_OPENGL_TEXT = (
    "drawing MuJoCo needs OpenGL without a screen, and neither EGL nor OSMesa works here; on "
    "Debian or Ubuntu: apt-get install libegl1 libgl1 (or: apt-get install libosmesa6)"
)
FRAMES_PER_SECOND = 30.0  # if the environment does not declare it
ATARI_FRAMES_PER_SECOND = 60.0
GYM_MODELS = Path("mujoco", "assets_gym")  # in EnvPool's base path
MIN_FLOOR = 10.0  # m, half the side of a plane; smaller ones are tables
MUJOCO_PLANE = 0  # mujoco.mjtGeom.mjGEOM_PLANE
MODEL_TIMESTEP = 0.002  # s, of a model that does not say it


def envpool_camera(world: Any, name: str) -> Callable[[Any, int], Any]:
    """Return a function that draws an environment of the EnvPool pool inside ``world``, by its
    number."""
    while not isinstance(world, envpool_env.EnvPoolWorld):
        world = world.world
    pool: Any = world._pool
    pool._render_mode = "rgb_array"  # what EnvPool's own make(render_mode=...) does
    modules = [base.__module__ for base in type(pool).__mro__]
    is_mujoco = any(module.startswith("envpool.mujoco") for module in modules)
    context = _gl_context() if is_mujoco and sys.platform == "linux" else None

    def look(obs: Any, env: int) -> Any:
        if context is not None:
            context.make_current()
        try:
            return np.asarray(pool.render(env_ids=env)[0])
        except (RuntimeError, OSError) as error:  # no renderer, or its assets are not shipped
            raise Mistake(f"EnvPool cannot draw {name}: {error}") from error

    return look


def frame_rate(name: str, options: dict[str, Any]) -> float:
    """Return an EnvPool task's steps per second of its own time, as far as that is known."""
    import envpool

    config = {**envpool.make_spec(name).config._asdict(), **options}
    if envpool_env.is_atari(name):
        return ATARI_FRAMES_PER_SECOND / int(config["frame_skip"])
    if (model := _gym_model(config)) is not None:
        option = ET.parse(model).getroot().find("option")
        timestep = MODEL_TIMESTEP if option is None else option.get("timestep", MODEL_TIMESTEP)
        return 1.0 / (float(timestep) * int(config["frame_skip"]))
    return registered_frame_rate(name)


def registered_frame_rate(name: str) -> float:
    """Return the frames per second that Gymnasium's environment of this name declares."""
    spec = gymnasium.registry.get(name)
    if spec is None or not isinstance(spec.entry_point, str):
        return FRAMES_PER_SECOND
    try:
        made = gymnasium.envs.registration.load_env_creator(spec.entry_point)
    except ImportError:
        return FRAMES_PER_SECOND
    return float(getattr(made, "metadata", {}).get("render_fps") or FRAMES_PER_SECOND)


@contextlib.contextmanager
def endless_floors(name: str) -> Iterator[None]:
    """Context manager in which EnvPool builds Gymnasium's MuJoCo tasks on floors that have no end.

    A MuJoCo plane is infinite for contacts, whatever its size; it is only drawn as large as that
    says, so runners leave the floor of a film. Nothing else changes.
    """
    task = envpool_env.task_defaults(name)
    base = Path(task.get("base_path", ""))
    if envpool_env.family(name) != "mujoco.gym" or not (base / GYM_MODELS).is_dir():
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        models = Path(shutil.copytree(base / GYM_MODELS, Path(folder) / GYM_MODELS))
        for model in models.glob("*.xml"):
            _extend_floors(model)
        task["base_path"] = folder
        try:
            yield
        finally:
            task["base_path"] = str(base)


def _extend_floors(model: Path) -> None:
    """Make the floors of a MuJoCo model infinite to look at, with squares as large as before."""
    tree = ET.parse(model)
    materials = {each.get("name"): each for each in tree.iter("material")}
    for plane in (each for each in tree.iter("geom") if each.get("type") == "plane"):
        wide, deep, spacing = (float(x) for x in plane.get("size", "0 0 1").split())
        if min(wide, deep) < MIN_FLOOR:
            continue
        plane.set("size", f"0 0 {spacing}")
        material = materials.get(plane.get("material"))
        if material is not None and material.get("texuniform") != "true":
            repeats = [float(x) for x in material.get("texrepeat", "1 1").split()]
            material.set("texrepeat", f"{repeats[0] / wide} {repeats[1] / deep}")
    tree.write(model)


def extend_built_floors(environment: Any) -> None:
    """Make the floors of a Gymnasium environment of MuJoCo infinite to look at; leave others as
    they are."""
    model: Any = getattr(getattr(environment, "unwrapped", None), "model", None)
    if not hasattr(model, "geom_size") or not hasattr(model, "mat_texrepeat"):
        return
    for geom in np.flatnonzero(model.geom_type == MUJOCO_PLANE):
        sides, material = model.geom_size[geom, :2], model.geom_matid[geom]
        if min(sides) < MIN_FLOOR:
            continue
        if material >= 0 and not model.mat_texuniform[material]:
            model.mat_texrepeat[material] /= sides
        sides[:] = 0.0


def _gym_model(config: dict[str, Any]) -> Path | None:
    """Return the model's file of one of Gymnasium's MuJoCo tasks, None for others."""
    if "xml_file" not in config:
        return None
    folder, stem = Path(config["base_path"], GYM_MODELS), Path(config["xml_file"]).stem
    known = (folder / f"{stem}_envpool.xml", folder / config["xml_file"])
    return next((each for each in known if each.is_file()), None)


def _gl_context() -> Any:
    """Open an OpenGL context for this thread; without one EnvPool aborts the process.

    Which backend works is tested in another process: OpenGL's binding can be chosen only once per
    process.
    """
    for backend in [os.environ["MUJOCO_GL"]] if os.environ.get("MUJOCO_GL") else ["egl", "osmesa"]:
        probe = f"import mujoco.{backend} as gl; gl.GLContext(8, 8).make_current()"
        command = [sys.executable, "-c", probe]
        # close_fds=False spawns instead of forking, which a process with JAX's threads should not
        if not subprocess.run(
            command, capture_output=True, check=False, close_fds=False
        ).returncode:
            context = importlib.import_module(f"mujoco.{backend}").GLContext(64, 64)
            context.make_current()
            return context
    raise Mistake(NO_OPENGL_TEXT)
