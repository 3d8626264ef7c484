"""Import what a user names from outside Sterling: a Python file or a module, and an object in it.

A *reference* is one of ``path/to/file.py``, ``path/to/file.py:object``, ``package.module`` and
``package.module:object``. This file imports nothing slow: worker processes of environments use it,
and the command line reads source files by it without importing them.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.machinery
import importlib.util
import os
import re
import sys
import traceback
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from sterling.naming import called, hint

SUFFIX = ".py"
_NAME = r"[A-Za-z_]\w*"
_MODULE = re.compile(rf"{_NAME}(\.{_NAME})+|{_NAME}(\.{_NAME})*:{_NAME}(\.{_NAME})*")
OWN = (  # what stands before a colon in Sterling's own names of environments: no modules
    *("classic", "envpool", "gymnax", "gymnasium", "probe", "tabular", "bandit", "hazards"),
    *("maze", "corridor", "flip", "trials", "tictactoe", "spread", "pettingzoo"),
    *("game", "gym", "scored", "tools"),
)
_NOT_THE_USER_S = ("importlib", "site-packages", str(Path(__file__).parent))
_SCRIPTS = ("__main__", "__mp_main__")  # importing them again would run the user's script again


def is_reference(word: str) -> bool:
    """Return whether ``word`` has the form of a reference; what it names need not exist."""
    place, _ = split(word)
    if place.endswith(SUFFIX):
        return True
    return _MODULE.fullmatch(word) is not None and word.partition(":")[0] not in OWN


def split(word: str) -> tuple[str, str]:
    """Return the file or module of a reference, and the object's name ("": the module itself)."""
    place, colon, name = word.rpartition(":")
    return (place, name) if colon else (word, "")


def absolute(word: str) -> str:
    """Return the reference with an absolute path, so that it holds in every directory."""
    place, name = split(word)
    if not place.endswith(SUFFIX):
        return word
    path = os.path.abspath(os.path.expanduser(place))
    return f"{path}:{name}" if name else path


def short(word: str) -> str:
    """Return a reference as it is shown: ``/home/me/maze.py:make`` as ``maze:make``; any other name
    as it is."""
    place, name = split(word)
    if not place.endswith(SUFFIX):
        return word
    stem = Path(place).stem
    return f"{stem}:{name}" if name else stem


def title(thing: Any) -> str:
    """Return how a name, a reference or an object is shown."""
    return short(thing) if isinstance(thing, str) else called(thing)


def load(word: str) -> Any:
    """Import what a reference names, once per process.

    Raises Mistake, in one line, where there is no such file, module or name, and where importing
    raises.
    """
    place, name = split(word)
    found: Any = _module_of_file(place) if place.endswith(SUFFIX) else _module_of_name(place)
    for part in name.split(".") if name else ():
        if not hasattr(found, part):
            near = hint(part, public(found), f"it has {', '.join(public(found)) or 'nothing'}")
            refuse(f"{place} has no {part!r}{near}")
        found = getattr(found, part)
    return found


def build(word: str, /, **options: Any) -> Any:
    """Return what the factory that a reference names returns; in whatever process this is."""
    return load(word)(**options)


def public(module: Any) -> list[str]:
    """Return the names that a module (or class) defines itself, private ones left out."""
    home = getattr(module, "__name__", "")
    own = {name: each for name, each in vars(module).items() if not name.startswith("_")}
    at = {name: getattr(each, "__module__", home) for name, each in own.items()}
    return [name for name, each in own.items()
            if at[name] == home and not isinstance(each, types.ModuleType)]  # fmt: skip


def word_of(thing: Any) -> str | None:
    """Return a reference that imports exactly this module, class, function or module-level object;
    None where nothing does, as for a lambda and for whatever a script makes."""
    if isinstance(thing, types.ModuleType):
        return _word_of_module(thing)
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    module = sys.modules.get(getattr(kind, "__module__", None) or "")
    place = None if module is None else _word_of_module(module)
    if place is None or module is None:
        return None
    name = getattr(thing, "__qualname__", None)
    name = name or next((key for key, each in vars(module).items() if each is thing), "")
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{place}:{name}" if found is thing else None


def file_of(word: str, beside: Path | None = None) -> Path | None:
    """Return the source file of a reference without importing anything; None where there is none.

    ``beside``: a folder in which modules are looked for as well.
    """
    place, _ = split(word)
    if place.endswith(SUFFIX):
        path = Path(place).expanduser().absolute()
        return path if os.path.isfile(path) else None  # False also for what can be no name
    first, *rest = place.split(".")
    folders = [*sys.path, *([str(beside)] if beside else []), os.getcwd()]
    spec = importlib.machinery.PathFinder.find_spec(first, folders)
    for part in rest:
        inside = None if spec is None else spec.submodule_search_locations
        spec = importlib.machinery.PathFinder.find_spec(part, inside) if inside else None
    origin = None if spec is None else spec.origin
    return Path(origin) if origin and origin.endswith(SUFFIX) else None


def hashes(words: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each reference's source file, by its file or module; references
    without a readable file and other names are left out."""
    found = {}
    for place in {split(word)[0] for word in words if is_reference(word)}:
        path = file_of(place)
        if path is not None:
            with contextlib.suppress(OSError):
                found[place] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def refuse(line: str, cause: BaseException | None = None) -> NoReturn:
    """Raise Mistake, whose module is only imported now: it imports JAX."""
    from sterling.types import Mistake

    raise Mistake(line) from cause


def explain(error: BaseException) -> str:
    """Return an exception in one line, with the last place in code that is not a library's."""
    said = " ".join(f"{type(error).__name__}: {error}".split())[:300].rstrip(": ")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if not any(part in frame.filename for part in _NOT_THE_USER_S)]  # fmt: skip
    if not frames or isinstance(error, SyntaxError):  # which says where by itself
        return said
    return f"{said} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"


def _word_of_module(module: types.ModuleType) -> str | None:
    """A package's module by its name, which survives a move; any other file by its path, which
    holds whatever ``sys.path`` is."""
    file = getattr(module, "__file__", None)
    if module.__name__ in _SCRIPTS or not file or not file.endswith(SUFFIX):
        return None
    top = sys.modules.get(module.__name__.partition(".")[0])
    packaged = top is not None and getattr(top, "__path__", None) and getattr(top, "__file__", None)
    return module.__name__ if packaged else os.path.abspath(file)


def _module_of_name(name: str) -> types.ModuleType:
    """A module by its dotted name, found as ``python -m`` would: in this directory as well."""
    here = os.getcwd()
    if name.partition(".")[0] not in sys.modules and here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            refuse(f"{name} cannot be imported: {explain(error)}", error)
        refuse(f"there is no module {name}: run from the directory that holds it, install it, or "
               "give the path of its file", error)  # fmt: skip
    except (Exception, SystemExit) as error:
        refuse(f"{name} cannot be imported: {explain(error)}", error)


def _module_of_file(place: str) -> types.ModuleType:
    """A module by its file. Modules beside it can be imported by it, as in a script."""
    path = Path(place).expanduser().absolute()
    if not os.path.isfile(path):
        beside = sorted(str(Path(place).with_name(each.name)) for each in path.parent.glob("*.py"))
        refuse(f"there is no file {place}{hint(place, beside)}")
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(path) and module.__name__ not in _SCRIPTS:
            return module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(_free_name(path), path)
    if spec is None or spec.loader is None:
        refuse(f"{place} cannot be imported: it is no Python source")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their module there
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[spec.name]
        if not isinstance(error, (Exception, SystemExit)):
            raise
        refuse(f"{place} cannot be imported: {explain(error)}", error)
    return module


def _free_name(path: Path) -> str:
    """The name that a file's module gets: its stem, or where another module has that, one that is
    the same in every process."""
    stem = re.sub(r"\W", "_", path.stem)
    try:
        known = sys.modules.get(stem) or importlib.util.find_spec(stem)
    except (ImportError, ValueError):
        known = None
    where = getattr(known, "origin", None) or getattr(known, "__file__", None)
    if known is None or where == str(path):
        return stem
    return f"{stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
