"""The run folder: what a run leaves on disk, and the facts it was made under.

    config.json      what was asked for, resolved      written once, before the first step
    metrics.jsonl    one line per log interval
    checkpoints/     see training/checkpoint.py
    result.json      what came out                     its presence says: this run is complete
    curve.png        the learning curve
    lock             who writes here now (training/guard.py)

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
from pathlib import Path
from typing import Any

import jax
import numpy as np

import sterling
from sterling.disk import replacing
from sterling.naming import hint
from sterling.training.guard import Lock
from sterling.types import Mistake

ESSENTIAL = ("algorithm", "environment", "steps", "seeds", "config")  # of a config.json
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "envpool", "gymnasium", "numpy")


def resuming(path: str | os.PathLike[str] | None) -> str:
    """The command that goes on with a run, as a shell takes it."""
    return f"sterling resume {shlex.quote(str(path))}"


def create(path: str | os.PathLike[str]) -> Path:
    """A folder for a new run; one that already holds a run is never written into.

    Raises :class:`Mistake` for a folder that holds a run, and for a path that cannot be a folder.
    """
    made = Path(path)
    ours = (made / "config.json", made / "result.json", metrics(made), checkpoints(made))
    try:
        held = any(part.exists() for part in ours)
        if not held:
            made.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a name with NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise Mistake(
            f"{str(path)!r:.80} cannot be a run folder ({reason}); choose another --out"
        ) from error
    if held:
        raise Mistake(
            f"{path} already holds a run; resume it with `{resuming(path)}` or choose another --out"
        )
    return made


def lock(path: str | os.PathLike[str]) -> Lock:
    """To be entered while writing to a run: a second process gets a :class:`Mistake`."""
    return Lock(path)


def checkpoints(path: Path) -> Path:
    """The folder of a run's checkpoints."""
    return path / "checkpoints"


def metrics(path: Path) -> Path:
    """A run's log, one JSON object per line."""
    return path / "metrics.jsonl"


def curve(path: Path) -> Path:
    """The picture of a run's learning curve."""
    return path / "curve.png"


def result(path: Path) -> Path:
    """A run's final numbers, there once it is complete."""
    return path / "result.json"


def write_config(path: Path, config: dict[str, Any]) -> None:
    """Store a run's resolved configuration; from then on the folder holds a run."""
    write_json(path / "config.json", config)


def read_config(path: Path) -> dict[str, Any]:
    """A run's configuration; tuples come back as lists.

    Raises :class:`Mistake` where no run is, naming the nearest one beside it, and for a file that
    is not a run's.
    """
    file = path / "config.json"
    if file.is_file():
        found = read_json(file)
        if not isinstance(found, dict):
            raise Mistake(f"{file} must hold an object, not {found!r:.40}; restore it")
        lacking = [name for name in ESSENTIAL if name not in found]
        if lacking:
            raise Mistake(
                f"{file} is not a run's: it lacks {', '.join(lacking)}; give a run's folder"
            )
        return found
    runs = [str(config.parent) for config in path.parent.glob("*/config.json")]
    raise Mistake(f"{path} holds no run{hint(str(path), runs, 'start one with `sterling train`')}")


def write_result(path: Path, content: dict[str, Any]) -> None:
    """Store a run's final numbers, arrays as lists; from then on the run is complete."""
    write_json(result(path), content)


def read_result(path: Path) -> dict[str, Any] | None:
    """A run's final numbers; None while it is not complete."""
    file = result(path)
    if not file.exists():
        return None
    found = read_json(file)
    if not isinstance(found, dict):
        raise Mistake(f"{file} is not a run's result; delete it and resume the run, which makes it")
    return found


def write_json(path: Path, content: Any) -> None:
    """Replace ``path`` by ``content`` in one move: a reader sees the old file or the new one."""
    text = json.dumps(content, indent=2, default=plain) + "\n"
    with replacing(path) as partial:
        partial.write_text(text)


def read_json(path: Path) -> Any:
    """What :func:`write_json` wrote."""
    try:
        return json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise Mistake(f"{path} is damaged ({error}); restore it or start the run anew") from error


def plain(value: Any) -> Any:
    """``json.dumps(default=plain)``: arrays, NumPy numbers, paths and dataclasses as JSON."""
    if isinstance(value, (np.generic, np.ndarray, jax.Array)):
        return np.asarray(value).tolist()
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise Mistake(f"{value!r} cannot be written as JSON; give numbers, text, lists or dicts")


def environment_facts() -> dict[str, Any]:
    """What a number depends on besides the configuration.

    ``versions``, ``hardware`` (memory in bytes), ``git`` (commit, and whether the code differs
    from it; None outside a repository) and ``time`` (ISO 8601, UTC).
    """
    hardware = {
        **place(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "devices": [device.device_kind for device in jax.devices()],
    }
    return {
        "versions": versions(),
        "hardware": hardware,
        "git": git(Path(__file__).parents[1]) or git(Path.cwd()),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def versions() -> dict[str, str | None]:
    """Of what results depend on; None for packages that are not installed."""
    ours = {"sterling": sterling.__version__, "python": platform.python_version()}
    return ours | {name: _version(name) for name in PACKAGES}


def place() -> dict[str, str]:
    """The kind of machine: operating system and processor, and what JAX computes on."""
    return {
        "platform": f"{platform.system()}-{platform.machine()}",
        "backend": jax.default_backend(),
    }


def git(where: Path) -> dict[str, Any] | None:
    """Commit of the repository around ``where``; ``dirty`` if anything under ``where`` differs.

    Only ``where`` counts, so that results written beside the code do not make the code dirty.
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


@functools.cache  # it is asked for at every checkpoint
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    """The processor's name; Linux knows it better than Python does."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
