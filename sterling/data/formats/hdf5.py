"""HDF5 files that hold all that they show: opened once nothing in them leads elsewhere.

HDF5 can show the contents of other files as its own: by links to other files, by rows that lie in
other files ("external storage"), by rows that are pieces of other datasets ("virtual"). A file from
the network could so have ``/etc/passwd`` read and saved in a copy. References and links by a name
are refused as well: no format that is read here has any, and they may lead in circles.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
from h5py import h5d, h5l, h5o, h5t

from sterling.data import memory
from sterling.types import Mistake

REMEDY = "write its numbers into one file, without links (h5repack or h5py)"
LINKS = {h5l.TYPE_SOFT: "a link by name", h5l.TYPE_EXTERNAL: "a link to another file"}


def opened(path: Path) -> h5py.File:
    """Open a file for reading. Raises Mistake where a part of it lies elsewhere; then nothing of
    that part was opened."""
    file = h5py.File(path, "r")
    try:
        _check(file)
    except BaseException:
        file.close()
        raise
    return file


def whole(entry: h5py.Dataset) -> Any:
    """Return all of a dataset; raises Mistake where memory does not suffice for what it says that
    it holds, which may be far more than its file."""
    memory.check(entry.nbytes, f"array {entry.name.strip('/')!r}")
    return entry[()]


def _check(file: h5py.File) -> None:
    """Look at every link without following it, then at every dataset without reading it."""
    links: dict[bytes, int] = {}
    file.id.links.visit(lambda name, info: links.update({name: info.type}), info=True)
    for name, kind in links.items():
        if kind != h5l.TYPE_HARD:
            _refuse(name, LINKS.get(kind, "a link of a kind that only its writer knows"))
    for name in links:
        if h5o.get_info(file.id, name).type == h5o.TYPE_DATASET:
            _check_dataset(name, h5d.open(file.id, name))


def _check_dataset(name: bytes, dataset: h5d.DatasetID) -> None:
    made = dataset.get_create_plist()
    if made.get_layout() == h5d.VIRTUAL:
        _refuse(name, "a virtual dataset, whose rows lie in others")
    if made.get_external_count():
        _refuse(name, "stored in another file")
    if dataset.get_type().detect_class(h5t.REFERENCE):
        _refuse(name, "made of references")


def _refuse(name: bytes, what: str) -> None:
    said = name.decode("utf-8", "replace")[:60]
    raise Mistake(f"{said!r} is {what}, which is not read; {REMEDY}")
