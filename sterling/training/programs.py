"""How programs are compiled: quickly, and once for all runs that need the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax

from sterling.types import Mistake

LEVEL, EMITTERS = "xla_backend_optimization_level", "xla_cpu_use_fusion_emitters"


def remember_programs() -> None:
    """Keep compiled programs on disk between processes (JAX_COMPILATION_CACHE_DIR to move them)."""
    _check_platform()
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")  # "" is none
        folder = caches / "sterling" / "xla"
        jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def _check_platform() -> None:
    """Raise Mistake where JAX was asked to compute on what is not here."""
    asked = os.environ.get("JAX_PLATFORMS")
    try:
        jax.default_backend()
    except (RuntimeError, AssertionError) as error:  # of a GPU that is not there it has no words
        if not asked:
            raise
        raise Mistake(
            f"JAX cannot compute on {asked!r}, as JAX_PLATFORMS says; unset it, or say cpu"
        ) from error


def quickly() -> dict[str, Any] | None:
    """``compiler_options`` of a run's programs.

    On CPUs LLVM works at its first level: a fifth less time to compile, and as quick to run (the
    zeroth is several times slower). XLA_FLAGS that name a level decide for themselves.
    """
    return _unless_told({LEVEL: 1})


def once() -> dict[str, Any] | None:
    """``compiler_options`` of programs that run once and briefly, such as a run's beginning.

    On CPUs no level of LLVM and XLA's older code for fusions: compiled in a third of the time, and
    slower to run. XLA_FLAGS that name a level decide for themselves.
    """
    return _unless_told({LEVEL: 0, EMITTERS: False})


def _unless_told(options: dict[str, Any]) -> dict[str, Any] | None:
    told = LEVEL in os.environ.get("XLA_FLAGS", "")
    return None if told or jax.default_backend() != "cpu" else options
