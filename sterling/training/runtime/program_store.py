"""Compiled programs on disk that a later process takes without tracing them again.

JAX's own cache of compiled programs is asked with the lowered program, so a process traces and
lowers everything before it can take anything: on small problems that takes as long as a quarter of
the training. This store is asked with what determines the program instead: the run's settings, the
shapes of the arguments, Sterling's source files, the versions of the packages, the processor, and
the options of JAX and XLA. The answer is the place of a program, which has its name from the
lowered program, so that runs share it if they differ in numbers alone.

A stored program contains machine code, and reading it runs ``pickle``. So it is read only if nobody
but the user can have written it (``system/trusted_folder.py``).

Code that no key can describe is never stored. So only the command line uses the store, because a
Python process may have replaced any function before; and only for Sterling's own algorithms and
worlds (``is_storable``).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache
from jaxtyping import PyTree

from sterling.algorithms import ALGORITHMS
from sterling.envs.registry import NATIVE_BACKENDS, find_backend
from sterling.system.processes.own_process import is_own_process
from sterling.system.trusted_folder import TrustedFolder
from sterling.training.config.settings import Settings
from sterling.training.runtime import program_facts

SWITCH = "STERLING_STORED_PROGRAMS"  # environment variable; 0: trace every program
LOAD_EVENT = "/jax/core/compile/load_stored_program"  # counted as time to compile
LIBRARY_CALL = "custom_call"  # JAX prepares a process for it, such as for LAPACK, as it lowers it
OTHER_PARTS = (  # settings that bring code, data or another run into the programs
    *("data", "spaces", "guide", "speech", "init", "phases", "schedules", "sources", "encoder"),
)
WORLDS = NATIVE_BACKENDS - {"trials"}  # trials contain another world, which may be the user's


class StoredJit:
    """A function compiled by ``jitted``, or taken from the open store.

    ``structure(*args)`` returns a tree with the structure of the result; it may trace, but must
    neither lower nor compile. All leaves of ``args`` must be arrays.
    """

    def __init__(self, name: str, jitted: Any, structure: Callable[..., PyTree]):
        self.name, self.jitted, self.structure = name, jitted, structure

    def __call__(self, *args: Any, facts: Any = None) -> Any:
        """Return the function's result. ``facts``: what also determines the program, as JSON."""
        store = _process.store
        return (self.jitted if store is None else store.program(self, args, facts))(*args)


class ProgramStore:
    """The stored programs of one run."""

    def __init__(self, folder: TrustedFolder, settings: Settings):
        self._folder = folder
        self.settings = program_facts.plain(settings)
        self._facts = (program_facts.environment(), self.settings)
        self._known: dict[Any, Any] = {}

    def program(self, function: StoredJit, args: tuple[Any, ...], facts: Any) -> Any:
        """Return the compiled program for these arguments, loaded or compiled and stored."""
        form = jax.tree.structure(args)
        shapes = tuple(jax.typeof(leaf) for leaf in jax.tree.leaves(args))
        place = (function, form, shapes, json.dumps(facts))
        if place not in self._known:
            self._known[place] = self._find(function, args, facts)
        return self._known[place]

    def _find(self, function: StoredJit, args: tuple[Any, ...], facts: Any) -> Any:
        key = self._key(function.name, args, facts)
        forms = jax.tree.structure((args, {})), jax.tree.structure(function.structure(*args))
        known = self._folder.read(key)
        found = None if known is None else self._load(known.decode(), *forms)
        if found is not None:
            return found
        lowered = function.jitted.lower(*args)
        program = lowered.as_text()
        if lowered.out_tree != forms[1] or LIBRARY_CALL in program:
            return function.jitted
        place = _hash([program, self._facts[0] | {"source": ""}])
        if (found := self._load(place, *forms)) is None:
            found = _compile_for_storing(lowered)
            self._save(place, found)
        self._folder.write(key, place.encode())
        return found

    def remember(self, name: str, args: Any, find: Callable[[], Any]) -> Any:
        """Return what ``find`` returns, as JSON gives it back: stored, or found and stored."""
        key = self._key(name, args, None)
        if (content := self._folder.read(key)) is not None:
            return json.loads(content)
        text = json.dumps(find())
        self._folder.write(key, text.encode())
        return json.loads(text)

    def _key(self, name: str, args: Any, facts: Any) -> str:
        leaves = jax.tree_util.tree_leaves_with_path(args)
        shapes = [(jax.tree_util.keystr(path), repr(jax.typeof(leaf)), jax.typeof(leaf).weak_type)
                  for path, leaf in leaves]  # fmt: skip
        return _hash([name, facts, *self._facts, shapes])

    def _load(self, place: str, in_tree: Any, out_tree: Any) -> Any:
        """Return the program stored at ``place``, or None if none can be read there."""
        start = time.monotonic()
        if (content := self._folder.read(place)) is None:
            return None
        try:
            found = serialize_executable.deserialize_and_load(content, in_tree, out_tree)
        except Exception:  # of another build of jaxlib, for instance: any kind of exception
            self._folder.remove(place)
            return None
        jax.monitoring.record_event_duration_secs(LOAD_EVENT, time.monotonic() - start)
        return found

    def _save(self, place: str, made: Any) -> None:
        try:
            content, _, _ = serialize_executable.serialize(made)
        except Exception:  # programs that call back into the process cannot be stored
            return
        self._folder.write(place, content)


def _hash(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _compile_for_storing(lowered: Any) -> Any:
    """Compile without JAX's cache: what it returns lacks the machine code (jaxlib 0.10)."""
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # otherwise the option has no effect
    try:
        return lowered.compile()
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
        compilation_cache.reset_cache()


class _Process:
    """What this process has said about stored programs."""

    from_command_line = False
    store: ProgramStore | None = None  # the open one


_process = _Process()


def use_on_command_line() -> None:
    """Let this process use stored programs, if it was started for a command, unless the environment
    variable ``SWITCH`` is 0."""
    _process.from_command_line = is_own_process() and os.environ.get(SWITCH, "1") != "0"


@contextlib.contextmanager
def opened(settings: Settings) -> Iterator[None]:
    """Context manager in which programs are those of a run with ``settings``, and may be stored."""
    before = _process.store
    if not is_open_for(settings):
        _process.store = _store_of(settings)
    try:
        yield
    finally:
        _process.store = before


def is_open_for(settings: Settings) -> bool:
    """Whether the open store is that of a run with ``settings``."""
    store = _process.store
    return store is not None and store.settings == program_facts.plain(settings)


def remembered(name: str, args: Any, find: Callable[[], Any]) -> Any:
    """Return what ``find`` returns, which must be plain values that the run and the shapes of
    ``args`` determine; from the open store if it is there."""
    store = _process.store
    return find() if store is None else store.remember(name, args, find)


def _store_of(settings: Settings) -> ProgramStore | None:
    folder = jax.config.values.get("jax_compilation_cache_dir")
    if not _process.from_command_line or not folder or "://" in folder or not is_storable(settings):
        return None
    if jax.default_backend() != "cpu" or not TrustedFolder.is_possible():
        return None
    store = TrustedFolder(Path(folder) / "sterling-programs")
    return ProgramStore(store, settings) if store.create() else None


def is_storable(settings: Settings) -> bool:
    """Whether settings, shapes and Sterling's source determine the run's programs: it has no code
    of the user, no data and no other run in them."""
    world = settings.environment
    if any(getattr(settings, name) for name in OTHER_PARTS):
        return False
    if not isinstance(world, str) or str(settings.algorithm) not in ALGORITHMS:
        return False
    return find_backend(world)[0] in WORLDS
