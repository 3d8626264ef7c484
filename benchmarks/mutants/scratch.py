"""Make the copy of the repository in which bugs are planted, and import it once.

The working tree is never written to.
"""

from __future__ import annotations

import compileall
import contextlib
import importlib
import importlib.util
import os
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path

FLAGS = "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0"
IMPORTED = ("equations", "statistics", "experience", "training", "algorithms", "nets", "envs")
IMPORTED += ("data", "language", "report", "judging")


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


def entered(scratch: Path) -> None:
    """Make this process and those that it starts see the copy; import Sterling as tests do."""
    os.environ["XLA_FLAGS"] = FLAGS
    os.environ["PYTHONPATH"] = str(scratch)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.chdir(scratch)
    sys.path.insert(0, str(scratch))
    compileall.compile_dir(scratch / "sterling", quiet=1)
    spec = importlib.util.spec_from_file_location("before", scratch / "tests" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))  # the import hook, strict JAX
    import sterling

    for module in pkgutil.walk_packages(sterling.__path__, "sterling."):
        words = module.name.split(".")
        if words[-1] != "__main__" and (len(words) == 2 or words[1] in IMPORTED):
            _imported(module.name)
    for name in ("hypothesis", "pytest", "rlax", "scipy.stats", "scipy.special", "psutil"):
        _imported(name)
    sys.dont_write_bytecode = True
    from jax._src import xla_bridge

    if xla_bridge._backends:
        raise SystemExit("importing Sterling started a backend of JAX: a fork would hang")


def _imported(name: str) -> None:
    with contextlib.suppress(ImportError):  # of an optional package
        importlib.import_module(name)
