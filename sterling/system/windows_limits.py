"""What Sterling cannot do on Windows, and the message that says so."""

from __future__ import annotations

import os

from sterling.system.mistake import Mistake

IS_WINDOWS = os.name == "nt"


def refuse_on_windows(what: str, remedy: str = "Use Linux, macOS, or WSL on Windows.") -> None:
    """Raise Mistake on Windows: ``what``, in the plural, needs process groups and Unix's pipes."""
    if IS_WINDOWS:
        raise Mistake(f"{what} do not run on Windows. {remedy}")
