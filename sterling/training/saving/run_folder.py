"""The run folder: its files, and the versions and hardware that are stored with a run.

    config.json      the resolved settings             written once, before the first step
    metrics.jsonl    one line per log interval
    checkpoints/     see training/saving/checkpoint.py
    result.json      the final numbers                 a run is complete when this file exists
    curve.png        the learning curve
    episodes.safetensors   the last evaluation's episodes (report/episodes/episodes_file.py)
    lock             which process writes here now (training/runtime/folder_lock.py)

Nothing here is pickled. JSON is Python's: ``NaN`` and ``Infinity`` are kept, so that a setting
such as ``target_kl = inf`` is read back as it was written.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import psutil

from sterling.lookup.name_suggestions import did_you_mean
from sterling.lookup.user_imports import describe_error
from sterling.report.text_tables import join_words, pluralise
from sterling.system.atomic_files import atomic_write
from sterling.system.shown_values import shown_value
from sterling.system.terminal_messages import print_notice
from sterling.training.runtime.folder_lock import FolderLock
from sterling.types import Mistake
from sterling.version import __version__

REQUIRED_KEYS = ("algorithm", "environment", "steps", "seeds", "config")  # required in config.json
MOST_SHOWN = 10  # runs in the message about a folder of runs
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "envpool", "gymnasium", "numpy")


def resume_command(path: str | os.PathLike[str] | None) -> str:
    """Return the shell command that resumes a run."""
    return f"sterling resume {shlex.quote(str(path))}"


def create(path: str | os.PathLike[str]) -> Path:
    """Create the folder of a new run and return its path.

    Raise :class:`Mistake` for a folder that already holds a run, and for a path that cannot be a
    folder.
    """
    made = Path(path)
    ours = (made / "config.json", made / "result.json", metrics_path(made), checkpoints_path(made))
    try:
        held = any(part.exists() for part in ours)
        if not held:
            made.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a name with NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise Mistake(
            f"{shown_value(str(path))} cannot be a run folder ({reason}). Choose another --out."
        ) from error
    if held:
        raise Mistake(
            f"{path} already holds a run. Resume it with `{resume_command(path)}`, or choose "
            "another --out."
        )
    return made


def lock(path: str | os.PathLike[str]) -> FolderLock:
    """Return the lock to hold while writing to a run: a second process gets a :class:`Mistake`."""
    return FolderLock(path)


def checkpoints_path(path: Path) -> Path:
    """Return the folder of a run's checkpoints."""
    return path / "checkpoints"


def metrics_path(path: Path) -> Path:
    """Return the file of a run's metrics, one JSON object per line."""
    return path / "metrics.jsonl"


def curve_path(path: Path) -> Path:
    """Return the file of a run's learning curve."""
    return path / "curve.png"


def result_path(path: Path) -> Path:
    """Return the file of a run's final numbers, which exists once the run is complete."""
    return path / "result.json"


def write_config(path: Path, config: dict[str, Any]) -> None:
    """Write a run's resolved settings; from then on the folder holds a run."""
    write_json(path / "config.json", config)


def read_config(path: Path) -> dict[str, Any]:
    """Return a run's settings as JSON values; tuples come back as lists.

    Raise :class:`Mistake` if there is no run, naming the runs inside or a run with a similar name,
    and if the file is not a run's.
    """
    file = path / "config.json"
    if file.is_file():
        found = read_json(file)
        if not isinstance(found, dict):
            raise Mistake(f"{file} must hold a JSON object, not {shown_value(found)}. Restore it.")
        lacking = [name for name in REQUIRED_KEYS if name not in found]
        if lacking:
            raise Mistake(
                f"{file} is not a run's: it has no {', '.join(lacking)}. Give a run's folder."
            )
        return found
    if inside := _runs_inside(path):
        count = pluralise(len(inside), "run")
        raise Mistake(
            f"{path} is not a run, but holds {count}. Name one: {join_words(inside, MOST_SHOWN)}"
        )
    runs = [str(config.parent) for config in path.parent.glob("*/config.json")]
    raise Mistake(
        f"{path} holds no run{did_you_mean(str(path), runs, 'start one with `sterling train`')}"
    )


def _runs_inside(path: Path) -> list[str]:
    """Return the runs in a folder, or in its folders, by name; not other folders with a config."""
    found = [*path.glob("*/config.json"), *path.glob("*/*/config.json")]
    return sorted(str(file.parent) for file in found if _is_config_of_run(file))


def _is_config_of_run(file: Path) -> bool:
    try:
        found = read_json(file)
    except Mistake:  # damaged, or not ours
        return False
    return isinstance(found, dict) and all(name in found for name in REQUIRED_KEYS)


def write_result(path: Path, content: dict[str, Any]) -> None:
    """Write a run's final numbers, arrays as lists; from then on the run is complete."""
    write_json(result_path(path), content)


def read_result(path: Path) -> dict[str, Any] | None:
    """Return a run's final numbers; None while it is not complete."""
    file = result_path(path)
    if not file.exists():
        return None
    found = read_json(file)
    if not isinstance(found, dict):
        raise Mistake(f"{file} is not a run's result. Delete it and resume the run.")
    stopped = found.get("stopped")
    if stopped is not None and not _is_stop(stopped):
        raise Mistake(f"{file}: stopped is {shown_value(stopped)}. Restore it, or delete the file.")
    return found


def _is_stop(value: Any) -> bool:
    """Whether a value says by what, in which iteration and in which phase a run stopped early."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("by"), str)
        and all(type(value.get(name)) is int for name in ("iteration", "phase"))
        and 1 <= value["phase"] < 10_000
    )


def write_json(path: Path, content: Any) -> None:
    """Write ``content`` to ``path`` atomically: a reader sees the old file or the new one."""
    text = json.dumps(content, indent=2, default=json_default) + "\n"
    with atomic_write(path) as partial:
        partial.write_text(text)


def read_json(path: Path) -> Any:
    """Read a file that :func:`write_json` wrote."""
    try:
        return json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise Mistake(f"{path} is damaged ({error}). Restore it, or start a new run.") from error


def json_default(value: Any) -> Any:
    """Convert arrays, NumPy numbers, paths and dataclasses for ``json.dumps(default=...)``."""
    if isinstance(value, (np.generic, np.ndarray, jax.Array)):
        return np.asarray(value).tolist()
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise Mistake(f"{value!r} cannot be written as JSON. Use numbers, text, lists or dicts.")


def environment_facts() -> dict[str, Any]:
    """Return what results depend on besides the settings.

    ``versions``, ``hardware`` (memory in bytes), ``git`` (commit, and whether the code differs
    from it; None outside a repository) and ``time`` (ISO 8601, UTC).
    """
    hardware = {
        **machine_kind(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "memory": psutil.virtual_memory().total,
        "devices": [device.device_kind for device in jax.devices()],
    }
    return {
        "versions": package_versions(),
        "hardware": hardware,
        "git": git_facts(Path(__file__).parents[2]) or git_facts(Path.cwd()),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def package_versions() -> dict[str, str | None]:
    """Return the versions of packages that results depend on; None if not installed."""
    ours = {"sterling": __version__, "python": platform.python_version()}
    return ours | {name: _package_version(name) for name in PACKAGES}


def machine_kind() -> dict[str, str]:
    """Return the kind of machine: operating system, processor type, and JAX's backend."""
    return {
        "platform": f"{platform.system()}-{platform.machine()}",
        "backend": jax.default_backend(),
    }


def git_facts(where: Path) -> dict[str, Any] | None:
    """Return the commit of the repository around ``where``, and whether ``where`` is ``dirty``.

    Only changes under ``where`` count, so results written beside the code do not make it dirty.
    """

    def ask(*words: str) -> str:
        asked = ["git", "-C", str(where), *words]
        return subprocess.run(
            asked, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()

    try:
        return {
            "commit": ask("rev-parse", "HEAD"),
            "dirty": bool(ask("status", "--porcelain", "--", ".")),
        }
    except (OSError, subprocess.SubprocessError):
        return None  # no git here, no repository, or one without a commit


@functools.cache  # every checkpoint calls it
def _package_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    """Return the processor's name; on Linux /proc/cpuinfo is more exact than ``platform``."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def save_after_error(save: Callable[[], object]) -> None:
    """Save after an error. If saving fails too, print that and keep the first error."""
    try:
        save()
    except Exception as error:
        reason = describe_error(error)
        print_notice(f"the run could not be saved either ({reason}): the last checkpoint remains")
