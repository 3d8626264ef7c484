"""The JAX programs that importing test modules compiles: there shall be none.

Every worker imports every test module, so what one module compiles, all workers wait for.
"""

from typing import Any

import jax

COMPILED = "/jax/core/compile/backend_compile_duration"  # an event of JAX, once for each program


class ProgramsAtImport:
    """Lists ``module: program`` of what is compiled while ``module`` is set."""

    def __init__(self) -> None:
        self.module: str | None = None
        self.found: list[str] = []
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, seconds: float, **about: Any) -> None:
        if self.module is not None and event == COMPILED:
            self.found.append(f"{self.module}: {about.get('fun_name')}")
