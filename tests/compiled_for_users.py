"""Tests marked ``as_users`` are about the exact bits of users' programs, so theirs, and those of
the processes that they start, are compiled with XLA's own defaults, not with the Makefile's flags,
which save time.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import jax
import pytest
from jax._src import compiler

USERS_OPTIONS = {"xla_backend_optimization_level": 3, "xla_cpu_use_fusion_emitters": True}
_as_users = ExitStack()  # entered while tests marked as_users run
_entered = [False]


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
