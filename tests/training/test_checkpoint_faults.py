"""Checkpoints and the operating system: a full disk, a killed process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np

from sterling.training.saving import checkpoint, tensor_file

SCRIPT = """
import os, resource, sys
import numpy as np
from sterling.training.saving import checkpoint

def tree(n):
    return {f"x{i}": np.full(250_000, n * 100 + i, np.float64) for i in range(10)}

def full(folder):
    checkpoint.save(folder, 1, tree(1), {})
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, resource.RLIM_INFINITY))
    lines = []
    assert checkpoint.save(folder, 2, tree(2), {}, warn=lines.append) is None
    assert len(lines) == 1 and "not written" in lines[0], lines
    assert os.listdir(folder) == ["000000000001"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert checkpoint.save(folder, 3, tree(3), {}) is not None

def forever(folder):
    last = checkpoint.latest_checkpoint(folder)
    n = 1 if last is None else int(last.name[:12])
    while True:
        checkpoint.save(folder, n, tree(n), {"n": n})
        os.write(1, b"%d\\n" % os.getpid())  # at once: print may be killed before the newline
        n += 1

if sys.argv[1] == "full":
    full(sys.argv[2])
else:
    for folder in sys.stdin:  # a process for each, without importing everything anew
        child = os.fork()
        if child == 0:
            forever(folder.strip())
        os.waitpid(child, 0)
        print("dead", flush=True)
"""


def start(*arguments: str) -> subprocess.Popen[str]:
    repository = str(Path(checkpoint.__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": repository, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)


def test_checkpoint_zeros_are_stored_sparsely_and_read_back(tmp_path: Path) -> None:
    tree = {"ring": np.zeros(10_000_000, np.float32), "last": np.zeros(3_000_000, np.uint8)}
    tree["ring"][[0, 5_000_000]] = 1.0, -0.0  # whose sign is no zero
    path = checkpoint.save(tmp_path, 1, tree, {})
    assert path is not None
    written, size = path / "tree.safetensors", sum(each.nbytes for each in tree.values())
    assert written.stat().st_size > size
    if _knows_holes(tmp_path):
        assert written.stat().st_blocks * 512 < size / 10
    found, _ = checkpoint.load(tmp_path, tree)
    for name, leaf in tree.items():
        assert np.asarray(found[name]).tobytes() == leaf.tobytes()


def _knows_holes(folder: Path) -> bool:
    """Whether what is passed over in a file takes no room there."""
    with open(folder / "holes", "wb") as file:
        file.truncate(1 << 24)
    return (folder / "holes").stat().st_blocks == 0


def test_full_disk_skips_one_checkpoint_with_one_warning(tmp_path: Path) -> None:
    with start("full", str(tmp_path)) as process:
        assert process.wait(60) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000000000001", "000000000003"]


def stop_in_a_save(process: int, folder: Path) -> None:
    """Stop a process that saves again and again while it writes."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        os.kill(process, signal.SIGSTOP)
        time.sleep(0.001)  # the signal arrives
        if any(".tmp-" in path.name for path in folder.iterdir()):
            return
        os.kill(process, signal.SIGCONT)
        time.sleep(0.001)


def test_killed_at_any_moment_the_newest_checkpoint_is_whole(tmp_path: Path) -> None:
    template = {f"x{i}": np.zeros(250_000) for i in range(10)}
    partials = 0
    with start("forever") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for attempt in range(20):
            folder = tmp_path / str(attempt % 2)  # also on what an earlier kill has left
            process.stdin.write(f"{folder}\n")
            process.stdin.flush()
            child = int(process.stdout.readline())
            if attempt < 10:
                stop_in_a_save(child, folder)
            else:
                time.sleep(np.random.default_rng(attempt).uniform(0, 0.3))
            os.kill(child, signal.SIGKILL)
            while process.stdout.readline() != "dead\n":
                pass
            partials += any(".tmp-" in p.name for p in folder.iterdir())
            lines: list[str] = []
            tree, meta = checkpoint.load(folder, template, warn=lines.append)
            assert lines == []
            assert all((tree[f"x{i}"] == meta["n"] * 100 + i).all() for i in range(10))
        process.stdin.close()
    assert partials > 0  # else no kill has hit a save, and nothing is shown
    for folder in tmp_path.iterdir():
        checkpoint.save(folder, 10**6, template, {})
        assert not [p for p in folder.iterdir() if ".tmp-" in p.name]
        assert len(list(folder.iterdir())) == 2


def test_leaves_whose_joined_names_are_equal_are_kept_apart(tmp_path: Path) -> None:
    """As of observations with an entry arm/pos beside one arm with a part pos."""
    tree = {"arm/pos": np.ones(2), "arm": {"pos": np.zeros(3)}, "leg/pos": np.full(1, 5.0)}
    entries = tensor_file.describe_leaves(tree)
    assert [entry.name for entry in entries] == ["arm/pos", "arm~1pos", "leg/pos"]
    written = tensor_file.write(tmp_path / "a", tree, entries)
    again = tensor_file.read(tmp_path / "a", written, tree)
    jax.tree.map(np.testing.assert_array_equal, again, tree)
