"""The console that tables and panels are printed to."""

from __future__ import annotations

import os
import re
from typing import Any

from rich.console import Console

PIPE_WIDTH = 1000  # characters per line in files and pipes: wider than anything printed


class PlainConsole(Console):
    """A rich console without automatic colours that raises BrokenPipeError when its reader is gone.

    (As ``print`` does; rich itself would exit with code 1.) Files and pipes have no width, so lines
    are not wrapped in them, unless COLUMNS is set. Their lines do not end with the blanks with
    which rich fills a table's last column.
    """

    def __init__(self, **options: Any):
        super().__init__(highlight=False, **options)
        shown = self.is_terminal or self.is_jupyter or "COLUMNS" in os.environ
        if not shown and "width" not in options:
            self.width = PIPE_WIDTH

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, as ``print`` does."""
        raise BrokenPipeError("the reader of the output is gone")

    def _render_buffer(self, buffer: Any) -> str:
        text = super()._render_buffer(buffer)
        return text if self.is_terminal else re.sub(r" +(?=\n)", "", text)
