"""Open HDF5 files safely: files that refer to other files are refused before anything is read.

HDF5 can present the content of other files as its own: by links to other files, by rows stored in
other files ("external storage"), and by rows that are parts of other datasets ("virtual"). A file
from the network could in this way have ``/etc/passwd`` read and saved in a copy. References and
links by name are refused as well: no format read here uses them, and they may form cycles.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
from h5py import h5d, h5l, h5o, h5t

from sterling.data import available_memory
from sterling.types import Mistake

REMEDY = "Write its numbers into one file without links (with h5repack or h5py)."
LINKS = {h5l.TYPE_SOFT: "a link by name", h5l.TYPE_EXTERNAL: "a link to another file"}


def open_file(path: Path) -> h5py.File:
    """Open a file for reading; raise Mistake if it refers to another file, without opening that."""
    file = h5py.File(path, "r")
    try:
        _check_links(file)
    except BaseException:
        file.close()
        raise
    return file


def read_array(entry: h5py.Dataset) -> Any:
    """Read a whole HDF5 dataset; raise Mistake if memory does not suffice for its stated size,
    which may be far larger than the file."""
    available_memory.check_fits(entry.nbytes, f"The array {entry.name.strip('/')!r}")
    return entry[()]


def _check_links(file: h5py.File) -> None:
    """Check every link without following it, then every dataset without reading it."""
    links: dict[bytes, int] = {}
    file.id.links.visit(lambda name, info: links.update({name: info.type}), info=True)
    for name, kind in links.items():
        if kind != h5l.TYPE_HARD:
            _raise_unsupported(name, LINKS.get(kind, "a link of an unknown kind"))
    for name in links:
        if h5o.get_info(file.id, name).type == h5o.TYPE_DATASET:
            _check_dataset(name, h5d.open(file.id, name))


def _check_dataset(name: bytes, dataset: h5d.DatasetID) -> None:
    made = dataset.get_create_plist()
    if made.get_layout() == h5d.VIRTUAL:
        _raise_unsupported(name, "a virtual dataset, whose rows lie in other datasets")
    if made.get_external_count():
        _raise_unsupported(name, "stored in another file")
    if dataset.get_type().detect_class(h5t.REFERENCE):
        _raise_unsupported(name, "made of references")


def _raise_unsupported(name: bytes, what: str) -> None:
    label = name.decode("utf-8", "replace")
    raise Mistake(f"{label!r} is {what}, which is refused for safety. {REMEDY}")
