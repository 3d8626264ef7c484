"""Compilation: the cache of compiled programs on disk, and compiler options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax

from sterling.types import Mistake

OPTIMISATION_LEVEL, FUSION_EMITTERS = (
    "xla_backend_optimization_level",
    "xla_cpu_use_fusion_emitters",
)


def enable_compilation_cache() -> None:
    """Cache compiled programs on disk (JAX_COMPILATION_CACHE_DIR sets the folder)."""
    _check_platform()
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")  # "": unset
        folder = caches / "sterling" / "xla"
        jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def _check_platform() -> None:
    """Raise Mistake if JAX_PLATFORMS names a platform that is not available."""
    asked = os.environ.get("JAX_PLATFORMS")
    try:
        jax.default_backend()
    except (RuntimeError, AssertionError) as error:  # AssertionError: a missing GPU
        if not asked:
            raise
        raise Mistake(
            f"JAX has no platform {asked!r}, which JAX_PLATFORMS names. Unset it, or set it to cpu."
        ) from error


def run_compiler_options() -> dict[str, Any] | None:
    """Return ``compiler_options`` for a run's programs.

    On CPUs LLVM's optimisation level 1: a fifth less time to compile, and as fast to run (level 0
    is several times slower). A level in XLA_FLAGS has precedence.
    """
    return _unless_flags_set({OPTIMISATION_LEVEL: 1})


def startup_compiler_options() -> dict[str, Any] | None:
    """Return ``compiler_options`` for short programs that run once, such as creating a run.

    On CPUs LLVM's optimisation level 0 and XLA's older code for fusions: a third of the time to
    compile, and slower to run. A level in XLA_FLAGS has precedence.
    """
    return _unless_flags_set({OPTIMISATION_LEVEL: 0, FUSION_EMITTERS: False})


def _unless_flags_set(options: dict[str, Any]) -> dict[str, Any] | None:
    told = OPTIMISATION_LEVEL in os.environ.get("XLA_FLAGS", "")
    return None if told or jax.default_backend() != "cpu" else options
