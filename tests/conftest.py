"""One strict mode for every test: shape annotations are executed, nothing is promoted silently."""

import gc
import os
import time
from collections.abc import Iterator

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # read when JAX is imported

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache
from jaxtyping import install_import_hook

install_import_hook("sterling", "beartype.beartype")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
gc.set_threshold(10_000, 10, 10)  # what is traced is many objects: looking for cycles took 6 %


def pytest_collection_finish() -> None:
    """What was collected stays: no search for cycles walks over it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compiled programs of tests do not go to the user's cache; tests and processes share them."""
    folder = str(tmp_path_factory.getbasetemp().parent / "sterling-xla")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    compilation_cache.reset_cache()  # what was compiled while tests were collected had none


@pytest.fixture
def one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest new language model has one layer: its programs compile in half the time."""
    from sterling.language.model import SIZES

    monkeypatch.setitem(SIZES, "nano", (16, 1, 2, 1))


LOOK_EVERY = 1.0  # seconds: to count 30,000 maps takes 0.05, and most tests less than that
_looked = [0.0]


@pytest.fixture(autouse=True)
def _forget_programs() -> Iterator[None]:
    """Compiled programs hold maps of memory, of which a process may have 65,530 and dies at one
    more: from half of them on they go. What is needed again comes from the cache on disk."""
    yield
    if time.monotonic() - _looked[0] < LOOK_EVERY:
        return
    _looked[0] = time.monotonic()
    with open("/proc/self/maps") as maps:
        if sum(1 for _ in maps) > 32_000:
            jax.clear_caches()
