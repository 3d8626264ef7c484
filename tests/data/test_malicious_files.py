"""Files that show what lies elsewhere, or ask for more memory than there is."""

import io
import json
import shutil
import struct
import tracemalloc
import zipfile
import zlib

import h5py
import numpy as np
import pytest
from gymnasium import spaces

from sterling.data import Dataset, available_memory
from sterling.data.file_conversion import convert_files
from sterling.data.formats import rlds
from sterling.types import Mistake

ROWS = 6
HUGE = 2**33  # rows


def flat(file, **left_out):
    """A small dataset of D4RL."""
    arrays = {
        "observations": np.zeros((ROWS, 1), np.float32),
        "actions": np.zeros((ROWS, 1), np.float32),
        "rewards": np.zeros(ROWS, np.float32),
        "terminals": np.zeros(ROWS, bool),
        "timeouts": np.arange(ROWS) == ROWS - 1,
    }
    for name, array in arrays.items():
        if name not in left_out:
            file[name] = array
    return file


@pytest.fixture
def secret(tmp_path):
    """Another file, whose numbers must not be shown."""
    path = tmp_path / "secret.hdf5"
    with h5py.File(path, "w") as file:
        file["x"] = np.full((ROWS, 1), 42.0, np.float32)
    return path


def external_link(file, secret):
    file["observations"] = h5py.ExternalLink(secret, "/x")


def external_link_below(file, secret):
    flat(file)
    file["infos/deep/x"] = h5py.ExternalLink(secret, "/x")


def link_by_name(file, secret):
    file["y"] = np.zeros((ROWS, 1), np.float32)
    file["observations"] = h5py.SoftLink("/y")


def link_in_a_circle(file, secret):
    flat(file)
    file["infos/round"] = h5py.SoftLink("/infos")


def raw_storage(file, secret):
    shape = (ROWS,)
    file.create_dataset("observations", shape, "<f4", external=[(str(secret), 0, 4 * ROWS)])


def raw_storage_below(file, secret):
    flat(file)
    file.create_dataset("metadata/policy/x", (9,), "u1", external=[("/etc/passwd", 0, 9)])


def virtual(file, secret):
    layout = h5py.VirtualLayout((ROWS, 1), np.float32)
    layout[:] = h5py.VirtualSource(secret, "x", (ROWS, 1))
    file.create_virtual_dataset("observations", layout)


def virtual_within(file, secret):
    file["y"] = np.zeros((ROWS, 1), np.float32)
    layout = h5py.VirtualLayout((ROWS, 1), np.float32)
    layout[:] = h5py.VirtualSource(".", "y", (ROWS, 1))
    file.create_virtual_dataset("infos/x", layout)
    flat(file)


def references(file, secret):
    flat(file)
    file.create_dataset("infos/x", (1,), h5py.ref_dtype)[0] = file["actions"].ref


def references_to_parts(file, secret):
    flat(file)
    region = file["actions"].regionref[:2]
    file.create_dataset("metadata/x", (1,), h5py.regionref_dtype)[0] = region


def references_in_records(file, secret):
    flat(file)
    file.create_dataset("infos/x", (1,), np.dtype([("a", "f4"), ("b", h5py.ref_dtype)]))


ELSEWHERE = {
    external_link: "'observations' is a link to another file",
    external_link_below: "'infos/deep/x' is a link to another file",
    link_by_name: "'observations' is a link by name",
    link_in_a_circle: "'infos/round' is a link by name",
    raw_storage: "'observations' is stored in another file",
    raw_storage_below: "'metadata/policy/x' is stored in another file",
    virtual: "'observations' is a virtual dataset",
    virtual_within: "'infos/x' is a virtual dataset",
    references: "'infos/x' is made of references",
    references_to_parts: "'metadata/x' is made of references",
    references_in_records: "'infos/x' is made of references",
}


def refused(path, said, tmp_path):
    """By every way to read it, in one line that names the file; nothing is written."""
    for read in (Dataset, lambda path: convert_files([path], tmp_path / "out")):
        with pytest.raises(Mistake) as told:
            read(path)
        line = str(told.value)
        assert said in line
        assert str(path.name) in line
        assert "\n" not in line
    assert not (tmp_path / "out" / "dataset.json").exists()


@pytest.mark.parametrize("make", ELSEWHERE, ids=lambda make: make.__name__)
def test_hdf5_links_virtual_datasets_and_references_are_refused(make, secret, tmp_path):
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as file:
        make(file, secret)
        if "actions" not in file:
            flat(file, observations=None)
    refused(path, ELSEWHERE[make], tmp_path)


def test_hdf5_links_of_unknown_kind_are_refused(secret, tmp_path):
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as file:
        flat(file)
        file["e"] = h5py.ExternalLink(secret, "/x")
    content = bytearray(path.read_bytes())
    at = content.rindex(64, 0, content.index(str(secret).encode()))  # its kind
    content[at] = 80
    path.write_bytes(content)
    refused(path, "'e' is a link of an unknown kind", tmp_path)


def test_minari_external_links_are_refused(build, secret, tmp_path):
    path = build([3, 5], [True, False]).save(tmp_path / "m", "minari")
    with h5py.File(path / "data" / "main_data.hdf5", "r+") as file:
        del file["episode_1/rewards"]
        file["episode_1/rewards"] = h5py.ExternalLink(secret, "/x")
    refused(path, "'episode_1/rewards' is a link to another file", tmp_path)


def test_hdf5_hard_links_and_cycles_are_accepted(tmp_path):
    """Hard links, also in a circle, show nothing that is not the file's own."""
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as file:
        flat(file)
        file["infos/x"] = np.arange(ROWS)
        file["infos/round"] = file["infos"]
    assert Dataset(path).rows == ROWS - 1


def sparse(path, name, shape, dtype):
    with h5py.File(path, "w") as file:
        flat(file, **{name: None})
        file.create_dataset(
            name, shape, dtype, chunks=tuple(min(n, 1024) for n in shape), compression="gzip"
        )
    assert path.stat().st_size < 20_000


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        ("terminals", (HUGE,), np.float64),
        ("timeouts", (HUGE, 1), np.int64),
        ("observations", (ROWS, HUGE // 64), np.float64),
        ("metadata/policy/x", (HUGE,), np.float32),
    ],
)
def test_sparse_hdf5_beyond_memory_is_refused_in_one_line(
    name, shape, dtype, tmp_path, monkeypatch
):
    monkeypatch.setattr(available_memory, "free_bytes", lambda: 2**30)
    sparse(tmp_path / "a.hdf5", name, shape, dtype)
    refused(tmp_path / "a.hdf5", "of memory and 1.1 GB are free", tmp_path)


def test_episode_longer_than_memory_is_refused(tmp_path, monkeypatch):
    """One episode is read at once, however the file is read."""
    monkeypatch.setattr(available_memory, "free_bytes", lambda: 2**26)
    count = 2**20
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for name, width in {"observations": 40, "actions": 1, "rewards": 1}.items():
            file.create_dataset(name, (count, width), "f4", chunks=(4096, width))
        for name in ("terminals", "timeouts"):
            file.create_dataset(name, (count,), bool, chunks=(4096,))
    with pytest.raises(Mistake, match=r"One piece of 1,048,576 rows takes 0\.2 GB of memory"):
        convert_files([tmp_path / "a.hdf5"], tmp_path / "out")


def test_dataset_beyond_free_disk_is_refused_before_writing(tmp_path, monkeypatch):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        flat(file)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(Mistake, match=r"cannot write .*out: it takes .* GB are free"):
        convert_files([tmp_path / "a.hdf5"], tmp_path / "out")


def test_sparse_minari_episode_beyond_memory_is_refused(build, tmp_path, monkeypatch):
    monkeypatch.setattr(available_memory, "free_bytes", lambda: 2**30)
    path = build([3, 5], [True, False]).save(tmp_path / "m", "minari")
    with h5py.File(path / "data" / "main_data.hdf5", "r+") as file:
        del file["episode_1/rewards"]
        file.create_dataset("episode_1/rewards", (HUGE,), "f4", chunks=(1024,), compression="gzip")
    refused(path, "array 'episode_1/rewards' takes 34.4 GB of memory", tmp_path)


def archived(path, **changed):
    """An npz whose members are given as bytes; small ones are deflated zeros."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made, io.BytesIO() as arrays:
        np.savez(arrays, **flat({}))
        with zipfile.ZipFile(arrays) as whole:
            for name in whole.namelist():
                content = changed.get(name.removesuffix(".npy"), whole.read(name))
                made.writestr(name, content)
    return path


def header(shape, dtype="<f8"):
    with io.BytesIO() as file:
        said = {"descr": dtype, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, said)
        return file.getvalue()


@pytest.mark.parametrize(
    ("name", "shape"),
    [("terminals", (HUGE,)), ("observations", (ROWS, HUGE)), ("rewards", (HUGE,))],
)
def test_npz_array_beyond_memory_is_refused(name, shape, tmp_path, monkeypatch):
    monkeypatch.setattr(available_memory, "free_bytes", lambda: 2**30)
    path = archived(tmp_path / "a.npz", **{name: header(shape) + bytes(1000)})
    said = "for 6 observations" if name == "rewards" else "GB of memory and 1.1 GB are free"
    refused(path, said, tmp_path)


def test_npz_with_a_huge_array_header_is_refused(tmp_path):
    """A hundred kilobytes unpack to a head of a hundred megabytes."""
    bomb = b"\x93NUMPY\x02\x00" + struct.pack("<I", 10**8) + b" " * 10**8
    path = archived(tmp_path / "a.npz", observations=bomb)
    del bomb
    tracemalloc.start()
    try:
        refused(path, "header of an array is too long", tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 5 * 10**7
    finally:
        tracemalloc.stop()


def test_compressed_parquet_beyond_memory_is_refused(tmp_path, monkeypatch):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    count = 2**22
    ones = arrow.array(np.zeros(count, np.float32))
    lists = arrow.FixedSizeListArray.from_arrays(ones, 1)
    columns = {"observation.state": lists, "action": lists}
    columns["episode_index"] = columns["frame_index"] = arrow.array(np.zeros(count, np.int64))
    (tmp_path / "a" / "data").mkdir(parents=True)
    (tmp_path / "a" / "meta").mkdir()
    file = tmp_path / "a" / "data" / "b.parquet"
    pyarrow.parquet.write_table(arrow.table(columns), file)
    said = {name: {"dtype": "float32", "shape": [1]} for name in columns}
    info = {"features": said, "total_frames": count}
    (tmp_path / "a" / "meta" / "info.json").write_text(json.dumps(info))
    monkeypatch.setattr(available_memory, "free_bytes", lambda: 2**26)
    refused(tmp_path / "a", "b.parquet takes 0.1 GB of memory and 0.1 GB are free", tmp_path)


def test_rlds_zlib_bomb_is_refused():
    tensor = rlds.FeatureTensor(np.dtype(np.float32), (2,), "zlib")
    good = zlib.compress(np.ones(2, np.float32).tobytes())
    assert tensor.array([good, good], 2).tolist() == [[1, 1], [1, 1]]
    bomb = zlib.compress(bytes(10**8))
    tracemalloc.start()
    try:
        for bad in (bomb, good[:-6]):
            with pytest.raises(Mistake, match="a compressed step does not unpack to 8 bytes"):
                tensor.array([good, bad], 2)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()


def test_minari_image_of_another_size_is_not_decoded():
    """A few kilobytes of JPEG or PNG can be a picture of gigabytes."""
    from PIL import Image

    from sterling.data.formats.minari import _decode_picture

    space = spaces.Box(0, 255, (32, 32, 3), np.uint8)
    with io.BytesIO() as file:
        Image.new("RGB", (32, 32)).save(file, "PNG")
        assert _decode_picture(file.getvalue(), space).shape == (32, 32, 3)
    for size, said in (
        ((33, 32), r"A picture has size \(32, 33\)"),
        ((20_000, 20_000), "too large"),
    ):
        with io.BytesIO() as file:
            Image.new("1", size).save(file, "PNG")
            with pytest.raises(Mistake, match=said):
                _decode_picture(file.getvalue(), space)
