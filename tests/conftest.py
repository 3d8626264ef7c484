"""One strict mode for every test: nothing is promoted silently.

Annotations of shapes are executed where ``tests/algorithms``, ``tests/contract`` or
``tests/equations`` run: their conftest files switch that on for the process.

Nothing depends on the shell or the user (``fixed_environment.py``), nor on luck: Hypothesis draws
the same examples every time. Tests marked slow may search at random, with more examples: they
begin with ``@settings(settings.get_profile("random"))``.
"""

import ctypes
import gc
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import cost_of_an_algorithm
import fixed_environment  # noqa: F401  (before JAX and others are imported)
import jax
import kept_programs
import lowering_context
import pytest
from compiled_for_users import pytest_runtest_setup, pytest_runtest_teardown  # noqa: F401  (hooks)
from hypothesis import settings
from programs_at_import import ProgramsAtImport

settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.register_profile(
    "random", derandomize=False, deadline=None, database=None, max_examples=1_000, print_blob=True
)
settings.load_profile("same")

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# JAX would write down, for every operation, the hundred calls it comes from, most of them pytest's.
jax.config.update("jax_traceback_in_locations_limit", 0)

lowering_context.share()

PROGRAMS = ProgramsAtImport()
gc.set_threshold(10_000, 10, 10)  # what is traced is many objects: looking for cycles took 6 %


# Cases of these tests that make test runs; it leaves the others to make test-slow, because they are
# the same promise again and take long.
QUICK_CASES = json.loads((Path(__file__).parent / "quick_cases.json").read_text())


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow the cases that :data:`QUICK_CASES` leaves out. Refuse tests that would have more
    cases with every new algorithm, if they are not listed."""
    for item in items:
        if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            continue
        quick = QUICK_CASES.get(f"{item.path.stem}::{item.originalname}")
        if quick is not None and item.callspec.id not in quick:
            item.add_marker(pytest.mark.slow)
    grown = cost_of_an_algorithm.grown(x for x in items if not x.get_closest_marker("slow"))
    if grown:
        raise pytest.UsageError("\n".join(grown))


LEAST_DISK = 10 << 30  # bytes: compiled programs, runs and data sets of tests may take half of it


def pytest_sessionstart(session: pytest.Session) -> None:
    """Say once if the disk is nearly full, where tests might fail for that alone."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    warning = disk_warning(shutil.disk_usage(tempfile.gettempdir()).free)
    if warning and terminal is not None and not hasattr(session.config, "workerinput"):
        terminal.write_line(warning, yellow=True)


def disk_warning(free: int) -> str:
    """Return the line about a disk with ``free`` bytes; empty if that is enough."""
    if free >= LEAST_DISK:
        return ""
    place = tempfile.gettempdir()
    return f"WARNING: {place} has {free / 2**30:.1f} GB free; tests may need {LEAST_DISK >> 30} GB"


def pytest_collectstart(collector: pytest.Collector) -> None:
    """From here on programs are compiled by the import of this module."""
    PROGRAMS.module = collector.nodeid


@pytest.fixture
def programs_at_import() -> ProgramsAtImport:
    """The programs that were compiled while tests were collected."""
    return PROGRAMS


def pytest_collection_finish() -> None:
    """What was collected stays: no search for cycles walks over it again."""
    PROGRAMS.module = None
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _own_cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compiled programs do not go to the user's cache: tests share some, their processes others."""
    worker = getattr(request.config, "workerinput", {}).get("workerid", "gw0")
    if worker == "gw0":
        kept_programs.remove_oldest(Path(os.environ[kept_programs.PROGRAMS]))
    kept_programs.use(children=tmp_path_factory.getbasetemp().parent / "sterling-xla")


@pytest.fixture
def one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest new language model has one layer: its programs compile in half the time."""
    from sterling.language.models.causal_lm import MODEL_SIZES

    monkeypatch.setitem(MODEL_SIZES, "nano", (16, 1, 2, 1))


LOOK_EVERY = 3.0  # seconds: to count 30,000 maps takes 0.05, and most tests less than that
MOST_MAPS = 32_000  # a process may have 65,530 maps of memory, and dies at one more
MOST_BYTES = 3 << 30  # three workers, and the processes that tests start, share 16 GB
_looked = [0.0]


@pytest.fixture(autouse=True)
def _forget_programs() -> Iterator[None]:
    """Compiled programs hold memory and maps of it: when they hold too much, they go. What is
    needed again comes from the cache on disk."""
    yield
    if time.monotonic() - _looked[0] < LOOK_EVERY:
        return
    _looked[0] = time.monotonic()
    if memory_held() > MOST_BYTES or memory_maps() > MOST_MAPS:
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # without it what is freed stays with the process


def memory_held() -> int:
    """Return the bytes of memory that this process holds."""
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory_maps() -> int:
    """Return the number of maps of memory that this process has."""
    with open("/proc/self/maps") as maps:
        return sum(1 for _ in maps)
