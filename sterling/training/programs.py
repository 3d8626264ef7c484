"""How programs are compiled: quickly, and once for all runs that need the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax

LEVEL, EMITTERS = "xla_backend_optimization_level", "xla_cpu_use_fusion_emitters"


def remember_programs() -> None:
    """Keep compiled programs on disk between processes (JAX_COMPILATION_CACHE_DIR to move them)."""
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sterling" / "xla"
        jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


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
