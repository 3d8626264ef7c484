"""Worlds by name. Nothing is imported before it is needed.

A name may begin with its backend: ``envpool:CartPole-v1``, ``classic:CartPole-v1``,
``gymnax:CartPole-v1``, ``gymnasium:CartPole-v1``, ``probe:cut``, ``tabular:chain-8``,
``bandit:5-arms-10-pulls``, ``hazards:3x6``, ``maze:5x5``, ``corridor:40``, ``flip:15``,
``trials:3:maze:4x4``, ``tictactoe:self``, ``spread:3-agents-4x4``,
``pettingzoo:mpe2/simple_spread_v3``. Without one, the first of classic, EnvPool, gymnax and
Gymnasium that has the name provides it. ``package:Name-v0`` imports the package first, as in
Gymnasium; ``ogbench:`` also takes the names of OGBench's datasets, for the environments they were
collected in. A user's own environment is an object, a reference (``path/to/file.py:factory`` or
``package.module:factory``), or a name that an installed package registers: see
``envs/user_env.py``.
"""

from __future__ import annotations

import fnmatch
import importlib
import re
from pathlib import Path
from typing import Any

from sterling.lookup import entry_points, user_imports
from sterling.lookup.name_suggestions import did_you_mean
from sterling.lookup.peer_names import unknown_environment
from sterling.types import Mistake

SEARCH_ORDER = ("classic", "envpool", "gymnax", "gymnasium")  # for names without a backend
NATIVE_MODULES = {  # backends whose worlds are this package's Tasks -> their modules
    "classic": "native.classic_control",
    "probe": "probes.probe_worlds",
    "tabular": "native.tabular_mdp",
    "bandit": "native.bandit",
    "hazards": "native.hazard_grid",
    "maze": "native.maze",
    "corridor": "native.corridor",
    "flip": "native.bit_flip",
    "trials": "trials",
    "tictactoe": "native.tictactoe",
    "spread": "native.spread_landmarks",
}
MODULES = {
    **NATIVE_MODULES,
    "envpool": "compiled.envpool_env",
    "gymnax": "compiled.gymnax_env",
    "pettingzoo": "hosted.pettingzoo_env",
}
NATIVE_BACKENDS = frozenset(NATIVE_MODULES)
PREFIXED_BACKENDS = (*(name for name in NATIVE_MODULES if name not in SEARCH_ORDER), "pettingzoo")
BACKENDS = (*SEARCH_ORDER, *PREFIXED_BACKENDS)
OLD_MUJOCO = re.compile(r"-v[23]$")  # versions that need mujoco-py
# the name of an OGBench dataset: environment, way of collecting, version
OGBENCH_DATASET = re.compile(r"(ogbench:.+)-(navigate|stitch|explore|play|noisy)(-.+)")


def names(pattern: str | None = None) -> dict[str, list[str]]:
    """Return each backend's names that contain ``pattern`` (``*`` and ``?`` are wildcards)."""
    wanted = f"*{(pattern or '').lower()}*"
    found = {backend: _backend_names(backend) for backend in BACKENDS}
    return {
        backend: [
            name for name in each if fnmatch.fnmatchcase(_searchable_name(backend, name), wanted)
        ]
        for backend, each in found.items()
    }


def _searchable_name(backend: str, name: str) -> str:
    """Return a name as it is searched: with its backend if users must write that."""
    return name.lower() if backend in SEARCH_ORDER else f"{backend}:{name}".lower()


def find_backend(environment: Any) -> tuple[str, Any]:
    """Return the backend of a name, and the name without the backend's prefix; for a user's own
    environment its kind (``user_env.KINDS``), and the reference or object."""
    from sterling.envs import user_env

    if not isinstance(environment, str):
        return user_env.environment_kind(environment), environment
    environment = OGBENCH_DATASET.sub(r"\1\3", environment)
    prefix, colon, rest = environment.partition(":")
    if colon and prefix in BACKENDS:
        if not _backend_knows(prefix, rest):
            known = [f"{prefix}:{name}" for name in _backend_names(prefix)]
            raise Mistake(_unknown_message(environment, known))
        return prefix, rest
    if user_imports.is_reference(environment) and (
        colon or environment.endswith(user_imports.PYTHON_SUFFIX)
    ):
        return user_env.resolve_reference(environment)
    for backend in SEARCH_ORDER:
        if _backend_knows(backend, environment) and not _is_only_registered(backend, environment):
            return backend, environment
    registered = entry_points.find_plugins(entry_points.WORLDS)
    if environment in registered:
        return user_env.resolve_reference(registered[environment].word)
    known = [name for backend in SEARCH_ORDER for name in _backend_names(backend)]
    known += list(registered)
    known += [f"{own}:{name}" for own in PREFIXED_BACKENDS for name in _backend_names(own)]
    raise Mistake(_unknown_message(environment, known))


FILE_SUFFIXES = (".hdf5", ".h5", ".npz", ".csv", ".parquet", ".jsonl")


def _unknown_message(environment: str, known: list[str]) -> str:
    from sterling.envs.compiled import envpool_env

    unknown = f"Unknown environment {environment!r}"
    if elsewhere := unknown_environment(environment, known):
        return unknown + elsewhere
    head, slash, name = environment.partition("/")
    if Path(environment).suffix in FILE_SUFFIXES:
        return f"there is no file {environment}"
    if head == "ALE":  # ale-py's prefix of Atari games
        return unknown + did_you_mean(name, known, "`sterling list environments` lists all")
    if slash and not any(name.startswith(f"{head}/") for name in known):
        words = "a dataset (`sterling data make` makes one) nor an environment"
        return f"{environment} is neither {words} (`sterling list environments` lists all)"
    near = did_you_mean(environment, known, "`sterling list environments` lists all", 3)
    reason = envpool_env.unavailable_reason()
    return unknown + near + (f" ({reason})" if reason else "")


def _backend_knows(backend: str, name: str) -> bool:
    if backend == "gymnasium":
        return _is_registered(name)
    return bool(_backend_module(backend).knows(name))


def _backend_names(backend: str) -> list[str]:
    if backend != "gymnasium":
        return list(_backend_module(backend).names())
    import gymnasium

    return sorted(gymnasium.registry)


def _backend_module(backend: str) -> Any:
    """Import the module of a backend.

    It offers ``names()``, ``knows(name)`` and, for native tasks, ``make(name)``, which returns a
    Task and its time limit (0: none).
    """
    return importlib.import_module(f"sterling.envs.{MODULES[backend]}")


def _is_registered(name: str) -> bool:
    """Whether Gymnasium has ``name``, after importing the package that a prefix names."""
    import gymnasium

    package, _, identity = name.rpartition(":")
    if package:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise Mistake(
                f"Environment {name}: package {package} cannot be imported: {error}"
            ) from error
    return identity in gymnasium.registry


def _is_only_registered(backend: str, name: str) -> bool:
    """Whether Gymnasium lists an environment of MuJoCo that it can no longer make."""
    import gymnasium

    spec = gymnasium.registry.get(name) if backend == "gymnasium" else None
    makes = "" if spec is None else getattr(spec.entry_point, "__module__", "")
    return makes == "gymnasium.envs" and OLD_MUJOCO.search(name) is not None


def make_native_task(backend: str, name: str) -> tuple[Any, int]:
    """Return a native world's Task and its time limit (0: none)."""
    made: tuple[Any, int] = _backend_module(backend).make(name)
    return made
