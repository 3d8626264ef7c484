"""Annotations of shapes are executed; the cases are a module beside the tests."""

import sys
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

install_import_hook("sterling", "beartype.beartype")
sys.path.insert(0, str(Path(__file__).parent))


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
