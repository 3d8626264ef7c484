"""PettingZoo environments by name: ``package/module``, for instance ``mpe2/simple_spread_v3``.

The package is one of PettingZoo's own (``butterfly``, ``sisl`` ...) or a separate one; its module
has a function ``parallel_env``, or else ``env``. They run in worker processes, as all Python
environments do (:class:`sterling.envs.hosted.hosted_env.HostWorld`), all agents of one environment
together (``envs/hosted/pettingzoo_parallel.py``).

The option ``state=true`` lets critics observe the environment's ``state()``. It is off by default:
for many environments the state is an image of everything, or repeats what the agents observe.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterling.envs.env_options import HOST_OPTIONS, check_bool, check_options
from sterling.problem.critic_only_obs import STATE
from sterling.system.mistake import Mistake

if TYPE_CHECKING:
    from sterling.types import World

NAME_PATTERN = re.compile(r"(\w+)/(\w+)")
EXTRA_PACKAGES = ("mpe2",)  # packages that the extra installs beside PettingZoo
INSTALL = "pip install 'sterling-rl[pettingzoo]'"


def names() -> list[str]:
    """Return the names in all installed packages, without checking that each can run."""
    found = {package: _package_folder(package) for package in EXTRA_PACKAGES}
    own = _package_folder("pettingzoo")
    if own is not None:
        found |= {each.name: each for each in own.iterdir() if (each / "__init__.py").exists()}
    return sorted(
        f"{package}/{file.stem}"
        for package, folder in found.items()
        for file in (folder.glob("*_v[0-9]*.py") if folder else ())
    )


def knows(name: str) -> bool:
    """Whether there is an environment called ``name``; raises Mistake if its package is not
    installed."""
    found = NAME_PATTERN.fullmatch(name)
    if found and _package_folder("pettingzoo") is None:
        raise Mistake(f"Environment pettingzoo:{name} needs PettingZoo: {INSTALL}")
    if found and found[1] in EXTRA_PACKAGES and _package_folder(found[1]) is None:
        raise Mistake(f"Environment pettingzoo:{name} needs the package {found[1]}: {INSTALL}")
    return found is not None and _module_name(name) is not None


def make_world(name: str, copies: dict[str, Any], purpose: str, options: dict[str, Any]) -> World:
    """Make a world of copies of the environment, stepped in worker processes."""
    from sterling.envs.hosted.hosted_env import HostWorld  # workers import this file, without JAX

    own = {key: value for key, value in options.items() if key not in HOST_OPTIONS}
    check_bool(STATE, own.get(STATE, False))
    _check_accepted(name, {key: value for key, value in own.items() if key != STATE})
    rest = {key: value for key, value in options.items() if key in HOST_OPTIONS}
    factory = functools.partial(make_env, name, **own)
    return HostWorld(factory, **copies, purpose=purpose, name=f"pettingzoo:{name}", **rest)


def make_env(name: str, /, *, state: bool = False, **options: Any) -> Any:
    """Make one environment, as PettingZoo gives it; with ``state`` mark its state as observed by
    critics."""
    module = importlib.import_module(str(_module_name(name)))
    env = getattr(module, "parallel_env", module.env)(**options)
    if state:
        env.unseen = (STATE,)
    return env


def _module_name(name: str) -> str | None:
    """Return the module to import an environment from; None if there is none."""
    package, _, rest = name.partition("/")
    for place, folder in ((f"pettingzoo.{package}", _package_folder("pettingzoo")),
                          (package, _package_folder(package))):  # fmt: skip
        inside = folder and (folder / package if place.startswith("pettingzoo.") else folder)
        if inside and ((inside / f"{rest}.py").exists() or (inside / rest).is_dir()):
            return f"{place}.{rest}"
    return None


def _package_folder(package: str) -> Path | None:
    """Return the folder of a package without importing it; None if it is not installed."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _check_accepted(name: str, given: dict[str, Any]) -> None:
    """Raise Mistake for the first option that the environment does not take, if its signature says
    so."""
    if not given:
        return
    try:
        raw = importlib.import_module(str(_module_name(name))).raw_env
    except (ImportError, AttributeError):
        return  # the environment itself will complain
    taken = inspect.signature(raw).parameters
    if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values()):
        check_options(f"pettingzoo:{name}", given, [*taken, STATE, *HOST_OPTIONS])
