"""PettingZoo's environments by name: ``package/module``, for instance ``mpe2/simple_spread_v3``.

The package is one of PettingZoo's own (``butterfly``, ``sisl`` ...) or one beside it; its module
has a function ``parallel_env``, or else ``env``. They live in worker processes, as all environments
of Python do (:class:`sterling.envs.gymnasium.Host`), all agents of one together
(``envs/parallel.py``).

Their option ``state=true`` shows critics what the environment's ``state()`` answers. It has to be
asked for: of many environments that is a picture of everything, or what all agents see once more.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any

from sterling.envs.gymnasium import Host
from sterling.envs.options import HOST_OPTIONS, check_options, check_switch
from sterling.types import Mistake, World
from sterling.unseen import STATE

FORM = re.compile(r"(\w+)/(\w+)")
OUR_OWN = ("mpe2",)  # packages beside PettingZoo that the extra installs
INSTALL = "pip install 'sterling-rl[pettingzoo]'"


def names() -> list[str]:
    """Those of the packages that are installed, whatever else they would need."""
    found = {package: _folder(package) for package in OUR_OWN}
    own = _folder("pettingzoo")
    if own is not None:
        found |= {each.name: each for each in own.iterdir() if (each / "__init__.py").exists()}
    return sorted(
        f"{package}/{file.stem}"
        for package, folder in found.items()
        for file in (folder.glob("*_v[0-9]*.py") if folder else ())
    )


def knows(name: str) -> bool:
    """Whether there is such an environment; Mistake where a package is missing."""
    found = FORM.fullmatch(name)
    if found and _folder("pettingzoo") is None:
        raise Mistake(f"environment pettingzoo:{name} needs PettingZoo: {INSTALL}")
    if found and found[1] in OUR_OWN and _folder(found[1]) is None:
        raise Mistake(f"environment pettingzoo:{name} needs the package {found[1]}: {INSTALL}")
    return found is not None and _module_of(name) is not None


def world(name: str, copies: dict[str, Any], purpose: str, options: dict[str, Any]) -> World:
    """A world of such environments, stepped in processes."""
    own = {key: value for key, value in options.items() if key not in HOST_OPTIONS}
    check_switch(STATE, own.get(STATE, False))
    _check_taken(name, {key: value for key, value in own.items() if key != STATE})
    rest = {key: value for key, value in options.items() if key in HOST_OPTIONS}
    factory = functools.partial(build, name, **own)
    return Host(factory, **copies, purpose=purpose, name=f"pettingzoo:{name}", **rest)


def build(name: str, /, *, state: bool = False, **options: Any) -> Any:
    """One of them, as PettingZoo gives it; with ``state`` it says that critics are to see that."""
    module = importlib.import_module(str(_module_of(name)))
    env = getattr(module, "parallel_env", module.env)(**options)
    if state:
        env.unseen = (STATE,)
    return env


def _module_of(name: str) -> str | None:
    """Where it is imported from; None where it is nowhere."""
    package, _, rest = name.partition("/")
    for place, folder in ((f"pettingzoo.{package}", _folder("pettingzoo")),
                          (package, _folder(package))):  # fmt: skip
        inside = folder and (folder / package if place.startswith("pettingzoo.") else folder)
        if inside and ((inside / f"{rest}.py").exists() or (inside / rest).is_dir()):
            return f"{place}.{rest}"
    return None


def _folder(package: str) -> Path | None:
    """Where a package lies, which is not imported for it."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _check_taken(name: str, given: dict[str, Any]) -> None:
    """Refuse the first option that the environment does not take, where it says which it takes."""
    if not given:
        return
    try:
        raw = importlib.import_module(str(_module_of(name))).raw_env
    except (ImportError, AttributeError):
        return  # what it takes shows when it is built
    taken = inspect.signature(raw).parameters
    if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values()):
        check_options(f"pettingzoo:{name}", given, [*taken, STATE, *HOST_OPTIONS])
