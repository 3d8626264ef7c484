"""Where tables and panels are printed."""

from __future__ import annotations

import os
from typing import Any

from rich.console import Console

UNFOLDED = 1000  # characters in a line of a file: nothing that is printed is wider


class Output(Console):
    """A console that colours nothing by itself, and whose reader may leave: that is
    BrokenPipeError, as it is of ``print``, where rich would end the program with code 1.

    Files and pipes have no width, so nothing is folded in them, unless COLUMNS asks for it.
    """

    def __init__(self, **options: Any):
        super().__init__(highlight=False, **options)
        shown = self.is_terminal or self.is_jupyter or "COLUMNS" in os.environ
        if not shown and "width" not in options:
            self.width = UNFOLDED

    def on_broken_pipe(self) -> None:
        """Say so as ``print`` does."""
        raise BrokenPipeError("nobody reads any more")
