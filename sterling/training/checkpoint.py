"""Checkpoints: atomic, checksummed, free of pickle and of code.

    <folder>/<step>/tree.safetensors    the leaves, see training/leaves.py
                    meta.json           what they are, their checksums, who wrote them

A checkpoint is written beside its final name (``<step>.tmp-<pid>``), brought to the disk, and
renamed: under its final name it is whole. What is read is verified first, so a flipped bit is
found; a damaged checkpoint is passed over for the one before it, loudly.

``meta.json`` is ``{"sha256": ..., "content": {"format": ..., ...}}`` in every format to come, so
that a format that is too new is told from one that is damaged.
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

from sterling.disk import STALE, runs, sync
from sterling.notice import say
from sterling.training import leaves
from sterling.training.checkpoint_meta import FORMAT, checksum, entries_of, read_content
from sterling.training.folder import place, plain, versions
from sterling.training.leaves import Damaged, Entry
from sterling.types import Mistake

Fit = Callable[[PyTree, dict[str, tuple[int, ...]]], PyTree]


def save(
    folder: str | os.PathLike[str],
    step: int,
    tree: PyTree,
    meta: dict[str, Any],
    *,
    keep: int = 2,
    warn: Callable[[str], None] = say,
) -> Path | None:
    """Write ``tree`` and ``meta`` (anything JSON can hold) as the checkpoint of ``step``.

    ``folder`` is a run's folder of checkpoints, ``step`` the environment steps taken.

    Returns where it lies. A full disk, or any other refusal of the file system, costs one warned
    line and returns None: the older checkpoints stay and training can go on. The newest ``keep``
    checkpoints stay; older ones go only once the new one is safe. No more than one leaf is
    copied at a time. Raises :class:`Mistake` for leaves that cannot be stored.
    """
    root = Path(folder)
    entries = leaves.describe(tree)
    text = json.loads(json.dumps(meta, default=plain))
    partial = root / f"{step:012d}.tmp-{os.getpid()}"
    try:
        final = _write(partial, step, tree, entries, text)
    except OSError as error:
        warn(f"checkpoint of step {step} not written ({error}); training goes on without it")
        shutil.rmtree(partial, ignore_errors=True)  # what cannot go now is swept next time
        return None
    try:
        _prune(root, final, keep)
    except OSError as error:
        warn(f"old checkpoints in {root} not removed ({error}); remove them by hand")
    return final


def load(
    folder: str | os.PathLike[str],
    template: PyTree,
    *,
    fit: Fit | None = None,
    warn: Callable[[str], None] = say,
) -> tuple[PyTree, dict[str, Any]]:
    """The newest good checkpoint in ``folder`` as ``(tree, meta)``.

    ``template`` is a tree like the one saved: arrays (or ``jax.ShapeDtypeStruct``) whose names,
    shapes and types must be the checkpoint's; functions in it are kept. Where some shapes may be
    others, ``fit(template, shapes)`` makes the template of a checkpoint whose leaves have these
    shapes, by name. ``folder`` may also be one checkpoint itself. Raises :class:`Mistake` if
    nothing readable is there, if the template differs (naming the first leaf that does), or if the
    format is not known here.
    """
    return _load(Path(folder), "", template, warn, fit)


def load_part(
    folder: str | os.PathLike[str],
    prefix: str,
    template: PyTree,
    *,
    warn: Callable[[str], None] = say,
) -> tuple[PyTree, dict[str, Any]]:
    """``load`` for the leaves below one path, such as ``agent/state``; the others are not read."""
    return _load(Path(folder), prefix, template, warn)


def iteration(folder: str | os.PathLike[str]) -> int:
    """The iteration at which a run goes on from its newest good checkpoint, or from this one."""
    found, _ = load_part(folder, "iteration", jax.ShapeDtypeStruct((), np.int32))
    return int(found)


def latest(folder: str | os.PathLike[str]) -> Path | None:
    """Where the newest checkpoint in ``folder`` lies, damaged or not."""
    return next(iter(_newest_first(Path(folder))), None)


def newest_sound(
    folder: str | os.PathLike[str],
    *,
    fits: Callable[[dict[str, Any]], bool] = lambda meta: True,
    warn: Callable[[str], None] = say,
) -> Path | None:
    """The newest checkpoint in ``folder`` whose every byte is what was written, and whose meta
    ``fits``; None where there is none at all. Others are named to ``warn``; Mistake if all are."""
    found = _newest_first(Path(folder))
    for path in found:
        if _good(path, fits):
            return path
        warn(f"WARNING: checkpoint {path} is DAMAGED; trying the one before it")
    if found:
        raise Mistake(f"no checkpoint in {folder} can be read; restore one or start the run anew")
    return None


def describe(path: Path) -> dict[str, Any]:
    """Everything ``meta.json`` of one checkpoint says: format, step, leaves, versions, meta."""
    try:
        return read_content(path)
    except (Damaged, OSError) as damage:
        raise Mistake(f"{path} is damaged ({damage}); use an older checkpoint") from damage


def _write(
    partial: Path, step: int, tree: PyTree, entries: list[Entry], meta: dict[str, Any]
) -> Path:
    """Everything on the disk under ``partial``, then under the name that is returned."""
    root = partial.parent
    root.mkdir(parents=True, exist_ok=True)
    _sweep(root)
    _room(root, sum(entry.size for entry in entries))
    partial.mkdir()
    written = leaves.write(partial / "tree.safetensors", tree, entries)
    _write_meta(partial / "meta.json", step, meta, written)
    sync(partial)
    final = _free_name(root, step)
    partial.rename(final)
    sync(root)
    return final


def _write_meta(path: Path, step: int, meta: dict[str, Any], entries: list[Entry]) -> None:
    content = {"format": FORMAT, "step": step, "meta": meta, "versions": versions(), **place()}
    content["leaves"] = [entry._asdict() for entry in entries]
    content = json.loads(json.dumps(content))  # as it will be read: lists for tuples
    path.write_text(json.dumps({"sha256": checksum(content), "content": content}))
    sync(path)


def _room(root: Path, size: int) -> None:
    free = shutil.disk_usage(root).free
    if free < 1.1 * size:
        raise OSError(f"it takes {size:,} bytes and the disk has {free:,} left")


def _free_name(root: Path, step: int) -> Path:
    """The step's name; numbered if it is taken, since what is there may be the last good one."""
    path, number = root / f"{step:012d}", 0
    while path.exists():
        number += 1
        path = root / f"{step:012d}.{number}"
    return path


def _sweep(root: Path) -> None:
    """Remove what processes that died while saving have left."""
    for path in root.glob("*.tmp-*"):
        owner = path.name.rpartition("-")[2]
        if not owner.isdigit():
            continue
        old = time.time() - path.stat().st_mtime > STALE  # also of a number that lives again
        if int(owner) == os.getpid() or old or not runs(int(owner)):
            shutil.rmtree(path)


def _prune(root: Path, newest: Path, keep: int) -> None:
    """Keep ``newest`` and the ``keep - 1`` before it.

    Checkpoints of later steps are there if the run went back because they were damaged: those
    go too, but only if they are.
    """
    found = _newest_first(root)
    at = found.index(newest)
    damaged = [path for path in found[:at] if not _good(path)]
    for path in damaged + found[at + max(keep, 1) :]:
        litter = path.with_name(f"{path.name}.tmp-{os.getpid()}")
        path.rename(litter)  # in one move, so that nobody meets half a checkpoint
        shutil.rmtree(litter)


def _good(path: Path, fits: Callable[[dict[str, Any]], bool] = lambda meta: True) -> bool:
    """Whether every byte is what was written; a format not known here counts as good."""
    try:
        content = read_content(path)
        leaves.verify(path / "tree.safetensors", entries_of(content))
        return fits(content["meta"])
    except Mistake:
        return True
    except (Damaged, OSError):
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
    fit: Fit | None = None,
) -> tuple[PyTree, dict[str, Any]]:
    single = (folder / "meta.json").exists()
    found = [folder] if single else _newest_first(folder)
    if not found:
        raise Mistake(f"{folder} holds no checkpoint; give the folder of a run that has saved one")
    for path in found:
        try:
            content = read_content(path)
            entries = entries_of(content)
            shapes = {entry.name: entry.shape for entry in entries}
            like = template if fit is None else fit(template, shapes)
            tree = leaves.read(path / "tree.safetensors", entries, like, prefix)
        except (Damaged, OSError) as damage:
            warn(f"WARNING: checkpoint {path} is DAMAGED ({damage}); trying the one before it")
            continue
        if not prefix:
            _compare_versions(path, content, warn)
        return tree, content["meta"]
    raise Mistake(f"no checkpoint in {folder} can be read; restore one or start the run anew")


def _compare_versions(path: Path, content: dict[str, Any], warn: Callable[[str], None]) -> None:
    """Say so if a run continued here cannot be expected to be bit-equal."""
    then = {**content["versions"], "platform": content["platform"], "backend": content["backend"]}
    now = {**versions(), **place()}
    names = ("sterling", "jax", "jaxlib", "platform", "backend")
    differ = [f"{n} {then.get(n)} -> {now[n]}" for n in names if then.get(n) != now[n]]
    if differ:
        warn(f"checkpoint {path} is from elsewhere ({', '.join(differ)}): not bit-exact from here")
