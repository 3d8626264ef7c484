"""Import user code by reference: a Python file or a module, and an object in it.

A *reference* is one of ``path/to/file.py``, ``path/to/file.py:object``, ``package.module`` and
``package.module:object``. This file imports nothing slow: environments' worker processes use it,
and the command line finds source files with it without importing them.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.machinery
import importlib.util
import itertools
import os
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from sterling.lookup.factory_names import factory_name
from sterling.lookup.name_suggestions import did_you_mean
from sterling.system.folder_hash import model_hash
from sterling.system.mistake import Mistake
from sterling.system.shown_values import short_text

PYTHON_SUFFIX = ".py"
_NAME = r"[A-Za-z_]\w*"
_MODULE = re.compile(rf"{_NAME}(\.{_NAME})+|{_NAME}(\.{_NAME})*:{_NAME}(\.{_NAME})*")
OWN_PREFIXES = (  # prefixes of Sterling's own environment names; none is a module
    *("classic", "envpool", "gymnax", "gymnasium", "probe", "tabular", "bandit", "hazards"),
    *("maze", "corridor", "flip", "trials", "tictactoe", "spread", "pettingzoo"),
    *("game", "gym", "scored", "tools"),
)
# prefixes of text worlds around tasks, which may be a user's, with options after them, as in
# tools:questions.jsonl,tools=calc+my_tools.py:make
TASK_WRAPPERS = ("tools:", "try-again:")
OPTION_START = re.compile(r",(?=[a-z_]+=)")
_LIBRARY_PATHS = ("importlib", "site-packages", str(Path(__file__).parents[1]))
# Importing these again would run the user's script again.
_SCRIPT_MODULES = ("__main__", "__mp_main__")
_NAMES: dict[str, str] = {}  # file -> the name of its module in sys.modules


def is_reference(word: str) -> bool:
    """Whether ``word`` has the form of a reference; its target need not exist."""
    place, _ = split_reference(word)
    if place.endswith(PYTHON_SUFFIX):
        return True
    return _MODULE.fullmatch(word) is not None and word.partition(":")[0] not in OWN_PREFIXES


def split_reference(word: str) -> tuple[str, str]:
    """Return the file or module of a reference, and the object's name ("": the module itself)."""
    place, colon, name = word.rpartition(":")
    return (place, name) if colon else (word, "")


def absolute_reference(word: str) -> str:
    """Return the reference with an absolute path, valid from every directory."""
    if word.startswith(TASK_WRAPPERS):
        return _change_inside(word, absolute_reference)
    place, name = split_reference(word)
    if not place.endswith(PYTHON_SUFFIX):
        return word
    path = os.path.abspath(os.path.expanduser(place))
    return f"{path}:{name}" if name else path


def short_name(word: str) -> str:
    """Return the display name of a reference: ``maze:make`` for ``/home/me/maze.py:make``; any
    other name unchanged."""
    if word.startswith(TASK_WRAPPERS):
        return _change_inside(word, short_name)
    place, name = split_reference(word)
    if not place.endswith(PYTHON_SUFFIX):
        return word
    stem = Path(place).stem
    return f"{stem}:{name}" if name else stem


def _change_inside(word: str, change: Callable[[str], str]) -> str:
    """Return the name of a wrapped text world with its tasks, and the parts of its options,
    changed."""
    tasks, *options = OPTION_START.split(word)
    wrapper, colon, inner = tasks.partition(":")
    pairs = [option.partition("=") for option in options]
    changed = [f"{key}={'+'.join(map(change, value.split('+')))}" for key, _, value in pairs]
    return ",".join([f"{wrapper}{colon}{change(inner)}", *changed])


def references_in(word: str) -> list[str]:
    """Return the references in a name: itself, or those of a wrapped text world's tasks and
    options."""
    inside = []

    def note(part: str) -> str:
        inside.append(part)
        return part

    if word.startswith(TASK_WRAPPERS):
        _change_inside(word, note)
    return [each for each in inside or [word] if is_reference(each)]


def display_name(thing: Any) -> str:
    """Return the display name of a name, a reference or an object."""
    return short_name(thing) if isinstance(thing, str) else factory_name(thing)


def load(word: str) -> Any:
    """Import the object that a reference names, once per process.

    Raise Mistake if the file, module or object does not exist, or if importing it fails.
    """
    place, name = split_reference(word)
    found: Any = _import_file(place) if place.endswith(PYTHON_SUFFIX) else _import_module(place)
    for part in name.split(".") if name else ():
        if not hasattr(found, part):
            near = did_you_mean(
                part, public_names(found), f"it has {', '.join(public_names(found)) or 'nothing'}"
            )
            raise_mistake(f"{place} has no {part!r}{near}")
        found = getattr(found, part)
    return found


def call_factory(word: str, /, **options: Any) -> Any:
    """Import a factory by its reference, call it with ``options`` and return the result."""
    return load(word)(**options)


def public_names(module: Any) -> list[str]:
    """Return the public names that a module (or class) itself defines."""
    home = getattr(module, "__name__", "")
    own = {name: each for name, each in vars(module).items() if not name.startswith("_")}
    at = {name: getattr(each, "__module__", home) for name, each in own.items()}
    return [name for name, each in own.items()
            if at[name] == home and not isinstance(each, types.ModuleType)]  # fmt: skip


def reference_to(thing: Any) -> str | None:
    """Return a reference that imports exactly this module, class, function or module-level object;
    None if there is none, as for a lambda or an object made by a script."""
    if isinstance(thing, types.ModuleType):
        return _module_reference(thing)
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    module = sys.modules.get(getattr(kind, "__module__", None) or "")
    place = None if module is None else _module_reference(module)
    if place is None or module is None:
        return None
    name = getattr(thing, "__qualname__", None)
    name = name or next((key for key, each in vars(module).items() if each is thing), "")
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{place}:{name}" if found is thing else None


def source_file(word: str, beside: Path | None = None) -> Path | None:
    """Return the source file of a reference without importing anything; None if there is none.

    ``beside``: a further folder in which to look for modules.
    """
    place, _ = split_reference(word)
    if place.endswith(PYTHON_SUFFIX):
        path = Path(place).expanduser().absolute()
        return path if os.path.isfile(path) else None  # False also for invalid file names
    first, *rest = place.split(".")
    folders = [*sys.path, *([str(beside)] if beside else []), os.getcwd()]
    spec = importlib.machinery.PathFinder.find_spec(first, folders)
    for part in rest:
        inside = None if spec is None else spec.submodule_search_locations
        spec = importlib.machinery.PathFinder.find_spec(part, inside) if inside else None
    origin = None if spec is None else spec.origin
    return Path(origin) if origin and origin.endswith(PYTHON_SUFFIX) else None


def source_hashes(words: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each reference's source file, by file or module name, and of each
    folder of a model, by its absolute path. Names that are no references, and references without a
    readable file, are left out."""
    words = list(words)
    folders = {word: model_hash(word) for word in words if os.path.isabs(word)}
    found = {folder: digest for folder, digest in folders.items() if digest}
    named = itertools.chain.from_iterable(map(references_in, words))
    for place in {split_reference(word)[0] for word in named}:
        path = source_file(place)
        if path is not None:
            with contextlib.suppress(OSError):
                found[place] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def raise_mistake(line: str, cause: BaseException | None = None) -> NoReturn:
    """Raise Mistake with this line, caused by ``cause``."""

    raise Mistake(line) from cause


def describe_error(error: BaseException) -> str:
    """Return an exception in one line, with the last file and line that is not a library's."""
    said = short_text(f"{type(error).__name__}: {error}").rstrip(": ")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if not any(part in frame.filename for part in _LIBRARY_PATHS)]  # fmt: skip
    if not frames or isinstance(error, SyntaxError):  # a SyntaxError names the line itself
        return said
    return f"{said} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"


def _module_reference(module: types.ModuleType) -> str | None:
    """Return a package's module by name, which survives a move of the package; any other module
    by its file's path, which does not depend on ``sys.path``."""
    file = getattr(module, "__file__", None)
    if module.__name__ in _SCRIPT_MODULES or not file or not file.endswith(PYTHON_SUFFIX):
        return None
    top = sys.modules.get(module.__name__.partition(".")[0])
    packaged = top is not None and getattr(top, "__path__", None) and getattr(top, "__file__", None)
    return module.__name__ if packaged else os.path.abspath(file)


def _import_module(name: str) -> types.ModuleType:
    """Import a module by its dotted name, also from this directory, as ``python -m`` does."""
    here = os.getcwd()
    if name.partition(".")[0] not in sys.modules and here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise_mistake(f"{name} cannot be imported: {describe_error(error)}", error)
        raise_mistake(
            f"there is no module {name}. Run from the directory that holds it, install it, or "
            "give the path of its file.",
            error,
        )
    except (Exception, SystemExit) as error:
        raise_mistake(f"{name} cannot be imported: {describe_error(error)}", error)


def _import_file(place: str) -> types.ModuleType:
    """Import a module from its file. It can import modules of its own folder, as a script can."""
    path = Path(place).expanduser().absolute()
    if not os.path.isfile(path):
        beside = sorted(str(Path(place).with_name(each.name)) for each in path.parent.glob("*.py"))
        raise_mistake(f"there is no file {place}{did_you_mean(place, beside)}")
    known = _imported_from(str(path))
    if known is not None:
        return known
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(_unused_module_name(path), path)
    if spec is None or spec.loader is None:
        raise_mistake(f"{place} cannot be imported: it is not Python source code.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module here
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[spec.name]
        if not isinstance(error, (Exception, SystemExit)):
            raise
        raise_mistake(f"{place} cannot be imported: {describe_error(error)}", error)
    _NAMES[str(path)] = spec.name
    return module


def _imported_from(file: str) -> types.ModuleType | None:
    """Return the module that was imported from ``file``. A run's loop asks for its algorithm in
    every iteration, so the answer is remembered while ``sys.modules`` holds it."""
    name = _NAMES.get(file, "")
    if name not in sys.modules or not _is_from(sys.modules[name], file):
        loaded = list(sys.modules.items())
        name = next((each for each, module in loaded if _is_from(module, file)), "")
        _NAMES[file] = name
    return sys.modules.get(name)


def _is_from(module: Any, file: str) -> bool:
    own = getattr(module, "__file__", None) == file
    return own and module.__name__ not in _SCRIPT_MODULES


def _unused_module_name(path: Path) -> str:
    """Return the module name for a file: its stem; if another module has that name, the stem with
    a hash of the path, which is the same in every process."""
    stem = re.sub(r"\W", "_", path.stem)
    try:
        known = sys.modules.get(stem) or importlib.util.find_spec(stem)
    except (ImportError, ValueError):
        known = None
    where = getattr(known, "origin", None) or getattr(known, "__file__", None)
    if known is None or where == str(path):
        return stem
    return f"{stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
