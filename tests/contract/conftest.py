"""Annotations of shapes are executed in all of Sterling."""

import executed_annotations
import pytest

executed_annotations.switch_on()


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
