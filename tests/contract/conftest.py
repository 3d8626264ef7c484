"""Annotations of shapes are executed; the cases are a module beside the tests.

Tests marked ``as_users`` are about the exact bits of users' programs, so theirs are compiled with
XLA's own defaults, not with the Makefile's flags, which save time.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import pytest
from jax._src import compiler
from jaxtyping import install_import_hook

install_import_hook("sterling", "beartype.beartype")
sys.path.insert(0, str(Path(__file__).parent))

USERS_OPTIONS = {"xla_backend_optimization_level": 3, "xla_cpu_use_fusion_emitters": True}
_as_users = ExitStack()  # entered while tests marked as_users run
_entered = [False]


@pytest.fixture(scope="session")
def written_logs(tmp_path_factory):
    """Where logs of probe worlds lie, written when they are first asked for."""
    return tmp_path_factory.mktemp("logs")


@pytest.fixture
def runs_for_long(monkeypatch):
    """Programs are compiled at LLVM's first level: here they run for longer than that takes."""
    from sterling.training import loop
    from sterling.training.runtime.compilation import FUSION_EMITTERS, OPTIMISATION_LEVEL

    monkeypatch.setattr(
        loop, "run_compiler_options", lambda: {OPTIMISATION_LEVEL: 1, FUSION_EMITTERS: False}
    )
    loop.compiled_advance.cache_clear()
    yield
    loop.compiled_advance.cache_clear()


@pytest.hookimpl(tryfirst=True)  # before fixtures train their runs
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Compile as for users from here on, if the test is marked so."""
    if is_as_users(item) and not _entered[0]:
        _entered[0] = True
        _as_users.enter_context(compiled_as_for_users())


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Compile in the least time again, unless the next test is marked too."""
    if _entered[0] and not is_as_users(nextitem):
        _entered[0] = False
        _as_users.close()


def is_as_users(item: pytest.Item | None) -> bool:
    """Whether the test's programs are compiled as users' are."""
    return item is not None and item.get_closest_marker("as_users") is not None


@contextmanager
def compiled_as_for_users() -> Iterator[None]:
    """While entered, every program is compiled as where XLA_FLAGS is not set."""
    from sterling.training import loop

    least = compiler.get_compile_options

    def as_users(*args: Any, env_options_overrides: Any = None, **options: Any) -> Any:
        overrides = USERS_OPTIONS | (env_options_overrides or {})
        return least(*args, env_options_overrides=overrides, **options)

    with mock.patch.dict(os.environ), mock.patch.object(compiler, "get_compile_options", as_users):
        os.environ.pop("XLA_FLAGS", None)  # Sterling asks whether it is set
        forget(loop)
        yield
    forget(loop)


def forget(loop: Any) -> None:
    """Forget the programs that were compiled so far."""
    loop.compiled_advance.cache_clear()
    jax.clear_caches()
