"""JAX's cache of compiled programs, kept from one run of the tests to the next.

JAX's keys are sound: they name the program, jaxlib, the flags and the processor. Its files are not:
a truncated one is read again and again, and never repaired. Here every file begins with a checksum
and appears whole or not at all; what cannot be read is removed, and what cannot be written is left
out. Programs that child processes compile stay in a folder of the one run.
"""

import contextlib
import hashlib
import os
from pathlib import Path

import jax
from fixed_environment import PROGRAMS
from jax._src import compilation_cache
from jax._src.compilation_cache_interface import CacheInterface

MOST_BYTES = 2 << 30
CHECKSUM_BYTES = len(hashlib.sha256().digest())


def use(children: Path) -> None:
    """Take this process's programs from the folder, and those of its children from ``children``."""
    folder = os.environ[PROGRAMS]
    compilation_cache.get_file_cache = lambda path: (KeptPrograms(Path(path)), path)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(children)
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compilation_cache.reset_cache()  # what was compiled while tests were collected had none


def remove_oldest(folder: Path, most: int = MOST_BYTES) -> None:
    """Remove the files that were not used for longest, until the others have ``most`` bytes."""
    with contextlib.suppress(OSError):
        found = sorted((each.stat().st_mtime, each) for each in folder.iterdir())
        total = sum(each.stat().st_size for _, each in found)
        for _, each in found:
            if total <= most:
                return
            total -= each.stat().st_size
            each.unlink()


class KeptPrograms(CacheInterface):
    """A folder of compiled programs; what cannot be read or written is absent."""

    def __init__(self, folder: Path):
        self._path = folder
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def get(self, key: str) -> bytes | None:
        """Return the program, or None; a damaged file is removed, so that it is written anew."""
        file = self._path / key
        with contextlib.suppress(OSError):
            content = file.read_bytes()
            checksum, program = content[:CHECKSUM_BYTES], content[CHECKSUM_BYTES:]
            if checksum == hashlib.sha256(program).digest():
                os.utime(file)  # used now
                return program
            file.unlink()
        return None

    def put(self, key: str, value: bytes) -> None:
        """Write the program under another name, then rename it."""
        file = self._path / key
        partial = file.with_name(f".{key}.{os.getpid()}")
        with contextlib.suppress(OSError):
            try:
                partial.write_bytes(hashlib.sha256(value).digest() + value)
                partial.replace(file)
            finally:
                partial.unlink(missing_ok=True)
