"""Save and load checkpoints: atomic, with checksums, without pickle or code.

    <folder>/<step>/tree.safetensors    the leaves, see training/saving/tensor_file.py
                    meta.json           the leaves' names and checksums, versions, the run's state

A checkpoint is written under a temporary name (``<step>.tmp-<pid>``), flushed to the disk, and
renamed: under its final name it is complete. Every read is verified, so a flipped bit is found; a
damaged checkpoint is skipped with a warning, and the one before it is used.

``meta.json`` is ``{"sha256": ..., "content": {"format": ..., ...}}`` in every future format too, so
that a format that is too new is distinguished from a damaged file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from sterling.system.atomic_files import STALE_SECONDS, flush_to_disk, is_process_alive
from sterling.system.terminal_messages import print_notice
from sterling.training.saving import tensor_file
from sterling.training.saving.checkpoint_meta import FORMAT, checksum, parse_entries, read_content
from sterling.training.saving.run_folder import json_default, machine_kind, package_versions
from sterling.training.saving.tensor_file import DamagedFile, Entry
from sterling.types import Mistake

ALL_DAMAGED = "all checkpoints in {} are damaged. Restore one, or start a new run."
FitTemplate = Callable[[PyTree, dict[str, tuple[int, ...]]], PyTree]


def save(
    folder: str | os.PathLike[str],
    step: int,
    tree: PyTree,
    meta: dict[str, Any],
    *,
    keep: int = 2,
    warn: Callable[[str], None] = print_notice,
) -> Path | None:
    """Write ``tree`` and ``meta`` (anything JSON can hold) as the checkpoint of ``step``.

    ``folder`` is a run's folder of checkpoints, ``step`` the environment steps taken.

    Return its path. If the file system refuses (a full disk, for instance), warn in one line and
    return None: the older checkpoints stay, and training can go on. The newest ``keep`` checkpoints
    stay; older ones are removed once the new one is complete. Only one leaf at a time is copied to
    the host. Raise :class:`Mistake` for leaves that cannot be stored.
    """
    root = Path(folder)
    entries = tensor_file.describe_leaves(tree)
    text = json.loads(json.dumps(meta, default=json_default))
    partial = root / f"{step:012d}.tmp-{os.getpid()}"
    try:
        final = _write(partial, step, tree, entries, text)
    except OSError as error:
        warn(f"checkpoint of step {step} not written ({error}); training goes on without it")
        shutil.rmtree(partial, ignore_errors=True)  # the next save removes what is left
        return None
    try:
        _prune(root, final, keep)
    except OSError as error:
        warn(f"old checkpoints in {root} were not removed ({error}). Remove them by hand.")
    return final


def load(
    folder: str | os.PathLike[str],
    template: PyTree,
    *,
    fit: FitTemplate | None = None,
    warn: Callable[[str], None] = print_notice,
) -> tuple[PyTree, dict[str, Any]]:
    """Load the newest valid checkpoint in ``folder`` as ``(tree, meta)``.

    ``template`` is a tree like the saved one: arrays (or ``jax.ShapeDtypeStruct``) with the
    checkpoint's names, shapes and types; functions in it are kept. If some shapes may differ,
    ``fit(template, shapes)`` adapts the template to the shapes in the checkpoint, given by name.
    ``folder`` may also be a single checkpoint. Raise :class:`Mistake` if there is no readable
    checkpoint, if the template differs (naming the first such leaf), or if the format is unknown.
    """
    return _load(Path(folder), "", template, warn, fit)


def load_subtree(
    folder: str | os.PathLike[str],
    prefix: str,
    template: PyTree,
    *,
    warn: Callable[[str], None] = print_notice,
) -> tuple[PyTree, dict[str, Any]]:
    """Load only the leaves below one path, such as ``agent/state``; otherwise like ``load``."""
    return _load(Path(folder), prefix, template, warn)


def read_arrays(
    folder: str | os.PathLike[str], prefix: str, *, warn: Callable[[str], None] = print_notice
) -> tuple[Path, dict[str, np.ndarray]]:
    """Return the path of the newest checkpoint in ``folder`` whose leaves below ``prefix`` are
    undamaged, and these leaves by what follows ``prefix`` in their names. No template is needed.
    ``folder`` may also be a single checkpoint."""
    for path in _checkpoints(Path(folder)):
        try:
            entries = parse_entries(read_content(path))
            return path, tensor_file.read_below(path / "tree.safetensors", entries, prefix)
        except (DamagedFile, OSError) as damage:
            _warn_of_damage(path, damage, warn)
    raise Mistake(ALL_DAMAGED.format(folder))


def read_iteration(folder: str | os.PathLike[str]) -> int:
    """Return the iteration of a run's newest valid checkpoint, or of the checkpoint ``folder``."""
    found, _ = load_subtree(folder, "iteration", jax.ShapeDtypeStruct((), np.int32))
    return int(found)


def latest_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """Return the path of the newest checkpoint in ``folder``, damaged or not."""
    return next(iter(_newest_first(Path(folder))), None)


def newest_valid(
    folder: str | os.PathLike[str],
    *,
    fits: Callable[[dict[str, Any]], bool] = lambda meta: True,
    warn: Callable[[str], None] = print_notice,
) -> Path | None:
    """Return the newest checkpoint in ``folder`` that is undamaged and whose meta ``fits``; None
    if the folder has no checkpoint. Warn of damaged ones; raise Mistake if all are damaged."""
    found = _newest_first(Path(folder))
    for path in found:
        if _is_valid(path, fits):
            return path
        warn(f"WARNING: checkpoint {path} is DAMAGED; trying the one before it")
    if found:
        raise Mistake(ALL_DAMAGED.format(folder))
    return None


def read_meta(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint's ``meta.json``: format, step, leaves, versions, meta."""
    try:
        return read_content(path)
    except (DamagedFile, OSError) as damage:
        raise Mistake(f"{path} is damaged ({damage}). Use an older checkpoint.") from damage


def _write(
    partial: Path, step: int, tree: PyTree, entries: list[Entry], meta: dict[str, Any]
) -> Path:
    """Write a checkpoint to ``partial``, flush it, rename it, and return the final path."""
    root = partial.parent
    root.mkdir(parents=True, exist_ok=True)
    _remove_stale(root)
    _check_free_space(root, sum(entry.size for entry in entries))
    partial.mkdir()
    written = tensor_file.write(partial / "tree.safetensors", tree, entries)
    _write_meta(partial / "meta.json", step, meta, written)
    flush_to_disk(partial)
    final = _free_name(root, step)
    partial.rename(final)
    flush_to_disk(root)
    return final


def _write_meta(path: Path, step: int, meta: dict[str, Any], entries: list[Entry]) -> None:
    content = {
        "format": FORMAT,
        "step": step,
        "meta": meta,
        "versions": package_versions(),
        **machine_kind(),
    }
    content["leaves"] = [entry._asdict() for entry in entries]
    content = json.loads(json.dumps(content))  # as it will be read: lists instead of tuples
    path.write_text(json.dumps({"sha256": checksum(content), "content": content}))
    flush_to_disk(path)


def _check_free_space(root: Path, size: int) -> None:
    free = shutil.disk_usage(root).free
    if free < 1.1 * size:
        raise OSError(f"it needs {size:,} bytes and the disk has {free:,} free")


def _free_name(root: Path, step: int) -> Path:
    """Return the step's path, numbered if it exists: the existing one may be the last valid one."""
    path, number = root / f"{step:012d}", 0
    while path.exists():
        number += 1
        path = root / f"{step:012d}.{number}"
    return path


def _remove_stale(root: Path) -> None:
    """Remove unfinished checkpoints of processes that died while saving."""
    for path in root.glob("*.tmp-*"):
        owner = path.name.rpartition("-")[2]
        if not owner.isdigit():
            continue
        old = (
            time.time() - path.stat().st_mtime > STALE_SECONDS
        )  # the id may belong to a new process
        if int(owner) == os.getpid() or old or not is_process_alive(int(owner)):
            shutil.rmtree(path)


def _prune(root: Path, newest: Path, keep: int) -> None:
    """Keep ``newest`` and the ``keep - 1`` checkpoints before it; remove the older ones.

    Checkpoints of later steps exist if the run went back because they were damaged: they are
    removed too, but only if they are damaged.
    """
    found = _newest_first(root)
    at = found.index(newest)
    damaged = [path for path in found[:at] if not _is_valid(path)]
    for path in damaged + found[at + max(keep, 1) :]:
        litter = path.with_name(f"{path.name}.tmp-{os.getpid()}")
        path.rename(litter)  # atomic, so that no reader finds half a checkpoint
        shutil.rmtree(litter)


def _is_valid(path: Path, fits: Callable[[dict[str, Any]], bool] = lambda meta: True) -> bool:
    """Whether a checkpoint is undamaged and its meta ``fits``; unknown formats count as valid."""
    try:
        content = read_content(path)
        tensor_file.verify(path / "tree.safetensors", parse_entries(content))
        return fits(content["meta"])
    except Mistake:
        return True
    except (DamagedFile, OSError):
        return False


def _newest_first(root: Path) -> list[Path]:
    found = []
    for path in root.iterdir() if root.is_dir() else ():
        if match := re.fullmatch(r"(\d{12,})(?:\.(\d+))?", path.name):
            found.append((int(match[1]), int(match[2] or 0), path))
    return [path for *_, path in sorted(found, reverse=True)]


def _load(
    folder: Path,
    prefix: str,
    template: PyTree,
    warn: Callable[[str], None],
    fit: FitTemplate | None = None,
) -> tuple[PyTree, dict[str, Any]]:
    for path in _checkpoints(folder):
        try:
            content = read_content(path)
            entries = parse_entries(content)
            shapes = {entry.name: entry.shape for entry in entries}
            like = template if fit is None else fit(template, shapes)
            tree = tensor_file.read(path / "tree.safetensors", entries, like, prefix)
        except (DamagedFile, OSError) as damage:
            _warn_of_damage(path, damage, warn)
            continue
        if not prefix:
            _compare_versions(path, content, warn)
        return tree, content["meta"]
    raise Mistake(ALL_DAMAGED.format(folder))


def _checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in ``folder``, or ``folder`` itself if it is one; raise Mistake if
    there is none."""
    found = [folder] if (folder / "meta.json").exists() else _newest_first(folder)
    if not found:
        raise Mistake(f"{folder} has no checkpoint. Give the folder of a run that has saved one.")
    return found


def _warn_of_damage(path: Path, damage: Exception, warn: Callable[[str], None]) -> None:
    warn(f"WARNING: checkpoint {path} is DAMAGED ({damage}); trying the one before it")


def _compare_versions(path: Path, content: dict[str, Any], warn: Callable[[str], None]) -> None:
    """Warn if versions or machine differ, so that the resumed run may not be bit-equal."""
    then = {**content["versions"], "platform": content["platform"], "backend": content["backend"]}
    now = {**package_versions(), **machine_kind()}
    names = ("sterling", "jax", "jaxlib", "platform", "backend")
    differ = [f"{n} {then.get(n)} -> {now[n]}" for n in names if then.get(n) != now[n]]
    if differ:
        warn(f"checkpoint {path} was written with {', '.join(differ)}: not bit-exact from here on")
