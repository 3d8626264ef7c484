"""Make the copy of the repository in which bugs are planted, and import it once.

The working tree is never written to.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

FLAGS = "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0"


def copied(root: Path, scratch: Path) -> None:
    """Make ``scratch`` hold the files of the repository that git knows or does not ignore."""
    asked = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"]
    files = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    for file in files:
        source, place = root / file, scratch / file
        if not source.is_file():
            continue
        if place.exists() and place.read_bytes() == source.read_bytes():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
    for place in scratch.rglob("*.py"):
        if str(place.relative_to(scratch)) not in files:
            place.unlink()
    (scratch.parent / "tmp").mkdir(exist_ok=True)


def entered(scratch: Path, folders: Iterable[str], tests: Iterable[Path]) -> None:
    """Make this process and those that it starts see the copy; import what will be needed.

    That is every module of ``folders``, and what the files ``tests`` import of Sterling.
    """
    os.environ["XLA_FLAGS"] = FLAGS
    os.environ["PYTHONPATH"] = str(scratch)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.chdir(scratch)
    sys.path.insert(0, str(scratch))
    spec = importlib.util.spec_from_file_location("before", scratch / "tests" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))  # the import hook, strict JAX
    names = {name for path in tests for name in _names(path)}
    for folder in folders:
        parts = (scratch / "sterling" / folder).rglob("*.py")
        names |= {".".join(p.relative_to(scratch).with_suffix("").parts) for p in parts}
    for name in sorted(names):
        _imported(name.removesuffix(".__init__"))
    sys.dont_write_bytecode = True
    from jax._src import xla_bridge

    if xla_bridge._backends:
        raise SystemExit("importing Sterling started a backend of JAX: a fork would hang")


def _names(path: Path) -> Iterator[str]:
    """Yield the modules that a file of tests imports, of Sterling and of others."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module.startswith("sterling"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _imported(name: str) -> None:
    with contextlib.suppress(ImportError):  # of an optional package
        importlib.import_module(name)
